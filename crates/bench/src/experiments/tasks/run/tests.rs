//! The bench as a whole, on very little data.

use std::sync::Arc;
use std::time::Duration;

use std::path::PathBuf;

use super::alone::{self, Alone};
use crate::experiments::tasks::kind::Kind;
use crate::experiments::tasks::*;

/// Too little data to wait for: all tables have rows, and queries answers.
fn tiny() -> TasksPlan {
    TasksPlan {
        workers: 2,
        scale: 0.001,
        seconds: 1.0,
        memory_bytes: Some(1 << 30),
        ..TasksPlan::default()
    }
}

#[test]
fn cells_of_a_repeat_share_their_seed_and_arms_are_inside() {
    let plan = TasksPlan {
        experiments: vec![TasksExperiment::Load, TasksExperiment::Cost],
        repeat: 2,
        ..tiny()
    };
    let cells = plan.cells();
    assert_eq!(cells.len(), 2 * (4 * 6 + 1));
    assert_eq!(cells[0].title(), "load at 0.7, fair, repeat 1");
    assert_eq!(cells[1].title(), "load at 0.7, tuned, repeat 1");
    assert_eq!(cells[24].title(), "cost, repeat 1");
    assert!(
        cells
            .iter()
            .all(|cell| cell.seed == 1 + u64::from(cell.repeat))
    );
    let chosen = TasksPlan {
        experiments: vec![TasksExperiment::Mix],
        arms: Arm::parse("stock")
            .into_iter()
            .chain(Arm::parse("duckdb"))
            .flatten()
            .collect(),
        loads: vec![0.8],
        ..tiny()
    };
    // DuckDB has no trace in common with the others.
    let cells = chosen.cells();
    assert_eq!(cells.len(), 1);
    assert_eq!(cells[0].title(), "mix at 0.8, stock, repeat 1");
}

#[test]
fn tuning_is_as_much_of_a_run_as_of_the_paper_s() {
    let settings = tiny().settings().unwrap();
    let (tracking, refresh) = (settings.tracking, settings.refresh);
    assert_eq!(tracking, Duration::from_secs_f64(1.0 / 15.0));
    assert_eq!(refresh, Duration::from_secs_f64(0.2));
    let refused = |plan: TasksPlan| plan.settings().unwrap_err().to_string();
    let tuning_s = Some((2.0, 1.0));
    assert!(refused(TasksPlan { tuning_s, ..tiny() }).contains("--tuning 2,1"));
    let loads = vec![0.9, 95.0];
    assert!(refused(TasksPlan { loads, ..tiny() }).contains("--load 95"));
    let scale = -1.0;
    assert!(refused(TasksPlan { scale, ..tiny() }).contains("--sf"));
    let memory_bytes = Some(1);
    assert!(
        refused(TasksPlan {
            memory_bytes,
            ..tiny()
        })
        .contains("--memory")
    );
}

#[test]
fn queries_arrive_on_our_engine_and_on_stock_datafusion() {
    let bench = TasksBench::new(&tiny()).unwrap();
    // As if every query took as long, so that the trace is the same on every machine.
    let once = alone::Once {
        latency_ms: 100.0,
        work_ms: 100.0,
    };
    let alone = Alone::new(Kind::both().map(|kind| (kind, once)));
    let mut known = bench.alone.lock().unwrap();
    known.insert(("fair".to_owned(), 2), Arc::new(alone));
    drop(known);
    let cell = |arm: &str, experiment| TasksCell {
        experiment,
        arm: Some(arm.parse().unwrap()),
        load: Some(0.5),
        repeat: 0,
        seed: 1,
    };
    let arrived = |arm, experiment| {
        let rows = bench.run(&cell(arm, experiment), &mut |_| ()).unwrap();
        match &rows[..] {
            [
                TasksRow {
                    measured: Measured::Arrived(arrived),
                    ..
                },
            ] => *arrived.clone(),
            other => panic!("{other:?}"),
        }
    };
    let tuned = arrived("tuned", TasksExperiment::Mix);
    let stock = arrived("stock", TasksExperiment::Mix);
    for run in [&tuned, &stock] {
        assert_eq!(run.failed.0, 0, "{:?}", run.failed);
        assert!(run.samples.iter().all(|sample| sample.latency_ms > 0.0));
        assert!(run.busy > 0.0 && run.offered > 0.0);
    }
    // The same trace, to the microsecond.
    let dues = |run: &Arrived| -> Vec<(Kind, f64)> {
        let due = |sample: &Sample| (sample.kind, sample.due_ms);
        run.samples.iter().map(due).collect()
    };
    assert_eq!(dues(&tuned), dues(&stock));
    assert!(dues(&tuned).len() > 2, "{:?}", dues(&tuned));
    assert!(tuned.scheduler.unwrap().tasks > 0 && stock.scheduler.is_none());
    let shift = arrived("fair", TasksExperiment::Shift);
    assert!(shift.samples.iter().any(|sample| sample.phase == 1));
}

#[test]
fn an_engine_that_is_not_there_is_left_out_and_said() {
    let plan = TasksPlan {
        python: PathBuf::from("/nonexistent/python"),
        ..tiny()
    };
    let cell = TasksCell {
        experiment: TasksExperiment::Load,
        arm: Some(Arm::DuckDb { partial: false }),
        load: Some(0.7),
        repeat: 0,
        seed: 1,
    };
    let rows = TasksBench::new(&plan).unwrap().run(&cell, &mut |_| ());
    let rows = rows.unwrap();
    let Measured::LeftOut(why) = &rows[0].measured else {
        panic!("{rows:?}");
    };
    assert!(why.contains("pip install duckdb"), "{why}");
}
