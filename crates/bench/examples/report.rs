//! Renders a results file: the table and the sentence on standard output, and
//! the page into a file.
//!
//! `report RESULTS.json PAGE.html`

use std::error::Error;
use std::path::Path;

use giveway_bench::{Report, html, sentence, table};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [results, page] = arguments.as_slice() else {
        return Err("usage: report RESULTS.json PAGE.html".into());
    };
    let report = Report::read(Path::new(results))?;
    std::fs::write(page, html::render(&report))?;
    println!("{}\n{}", table::render(&report), sentence(&report));
    Ok(())
}
