//! Renders a results file: the table and the sentence on standard output, and
//! the page into a file.
//!
//! `report RESULTS.json PAGE.html`

use std::error::Error;

use giveway_bench::read_reports;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [results, page] = arguments.as_slice() else {
        return Err("usage: report RESULTS.json PAGE.html".into());
    };
    let report = read_reports(&[results.into()])?;
    std::fs::write(page, report.page())?;
    println!("{}\n{}", report.table(), report.sentence());
    Ok(())
}
