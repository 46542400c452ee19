//! Measures one cell and prints its row, without the command line around it.
//!
//! `cell prepare DIR [WAREHOUSES [SCALE]]`, or `cell CONFIG.json`.

use std::error::Error;
use std::path::Path;

use giveway_bench::dataset::{self, DatasetSpec};
use giveway_bench::{CellConfig, run_cell};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let mut progress = |line: &str| eprintln!("{line}");
    match words.as_slice() {
        ["prepare", dir, rest @ ..] => {
            let mut spec = DatasetSpec::default();
            if let Some(warehouses) = rest.first() {
                spec.warehouses = warehouses.parse()?;
            }
            if let Some(scale) = rest.get(1) {
                spec.tpch_scale = scale.parse()?;
            }
            dataset::prepare(Path::new(dir), &spec, &mut progress)?;
        }
        [file] => {
            let config: CellConfig = serde_json::from_str(&std::fs::read_to_string(file)?)?;
            let row = run_cell(&config, &mut progress)?;
            println!("{}", serde_json::to_string(&row)?);
        }
        _ => return Err("usage: cell prepare DIR [WAREHOUSES [SCALE]] | cell CONFIG.json".into()),
    }
    Ok(())
}
