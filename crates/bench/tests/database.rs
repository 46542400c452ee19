//! The workloads on a real PostgreSQL server: data is made, terminals and the
//! background run for a second, and the consistency conditions hold afterwards,
//! and do not hold once the data is damaged.
//!
//! One test, because the data takes a while to make.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use giveway_bench::harness::error::Error;
use giveway_bench::workload::background::{Background, Job, Workers};
use giveway_bench::workload::dataset::{self, DatasetSpec};
use giveway_bench::workload::postgres::{Address, Installation, Server, Session, USER};
use giveway_bench::workload::tpcc::check;
use giveway_bench::workload::tpcc::terminal::{Tally, Terminal, Window};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

const SPEC: DatasetSpec = DatasetSpec {
    warehouses: 2,
    tpch_scale: 0.002,
    seed: 7,
};
const TERMINALS: u32 = 2;

#[test]
fn workloads_run_and_leave_a_consistent_database() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    // The server's user must be able to reach the data.
    open_to_all(dir.path());
    dataset::prepare(&data, &SPEC, &mut |_| {}).unwrap();
    let manifest = dataset::read_manifest(&data).unwrap();
    assert_eq!(manifest.spec, SPEC);

    let postgres = Installation::find().unwrap();
    let server = postgres.start(&data, &[]).unwrap();
    let session = Session::connect(&server, "test", &[]).unwrap();
    population_is_the_specifications(&session);
    check::consistency(&session).unwrap();

    let (tally, queries) = run(&postgres, &server);
    let counts = tally.counts;
    assert!(counts.new_order > 0 && counts.payment > 0, "{counts:?}");
    assert_eq!(tally.latency_ns.len(), counts.total());
    assert!(
        tally.latency_ns.min() > 10_000,
        "no transaction takes less than 10 µs"
    );
    assert!(queries > 0.0, "{queries} background queries");
    assert!(
        number(&session, "SELECT count(*) FROM oorder") > 60_000,
        "orders were placed"
    );
    check::consistency(&session).unwrap();

    for job in Job::ALL {
        rounds_are_counted(&postgres, &server, &session, *job);
    }
    if can_run(&session, Job::LogisticRegression) {
        a_model_is_better_than_a_guess(&session);
    }

    every_condition_notices_its_damage(&session);
    drop(session);
    server.stop().unwrap();
}

fn open_to_all(dir: &Path) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o755)).unwrap();
}

fn number(session: &Session, sql: &str) -> i64 {
    session
        .wait(session.client.query_one(sql, &[]))
        .unwrap()
        .get(0)
}

/// Clause 4.3.3.1, for two warehouses.
fn population_is_the_specifications(session: &Session) {
    for (sql, expected) in [
        ("SELECT count(*) FROM item", 100_000),
        ("SELECT count(*) FROM warehouse", 2),
        ("SELECT count(*) FROM district", 20),
        ("SELECT count(*) FROM customer", 60_000),
        ("SELECT count(*) FROM history", 60_000),
        ("SELECT count(*) FROM oorder", 60_000),
        ("SELECT count(*) FROM new_order", 18_000),
        ("SELECT count(*) FROM stock", 200_000),
        ("SELECT count(DISTINCT c_last) FROM customer", 1_000),
        (
            "SELECT count(DISTINCT o_c_id) FROM oorder WHERE o_w_id = 2 AND o_d_id = 3",
            3_000,
        ),
        (
            "SELECT count(*) FROM oorder WHERE o_carrier_id IS NULL",
            18_000,
        ),
        (
            "SELECT count(*) FROM order_line WHERE ol_amount = 0 AND ol_o_id > 2100",
            0,
        ),
        ("SELECT count(*) FROM part", 400),
    ] {
        assert_eq!(number(session, sql), expected, "{sql}");
    }
}

/// Runs terminals and one background worker for a second.
fn run(postgres: &Installation, server: &Server) -> (Tally, f64) {
    let q17 = Workers::new(Job::Q17, 1, USER);
    let mut background = Background::connect(postgres, server, &q17).unwrap();
    let terminals: Vec<Terminal> = (0..TERMINALS)
        .map(|number| Terminal::connect(&Address::of(server), number, 1, SPEC.warehouses).unwrap())
        .collect();
    let window = Window::after(Duration::from_millis(300), Duration::from_secs(1));
    let stop = AtomicBool::new(false);
    background.start();
    let mut sum = Tally::default();
    std::thread::scope(|scope| {
        let threads: Vec<_> = terminals
            .into_iter()
            .map(|terminal| scope.spawn(|| terminal.run(window, &stop).unwrap()))
            .collect();
        std::thread::sleep(window.end - Instant::now());
        background.settle(window.end, Duration::from_secs(2));
        stop.store(true, Ordering::Relaxed);
        for thread in threads {
            sum.add(&thread.join().unwrap());
        }
    });
    let queries = background.completed(window);
    background.expect_end();
    for pid in background.backend_pids() {
        kill(Pid::from_raw(*pid), Signal::SIGTERM).unwrap();
    }
    background.join().unwrap();
    (sum, queries)
}

/// Two workers do rounds, and are ended in the middle of one.
fn rounds_are_counted(postgres: &Installation, server: &Server, session: &Session, job: Job) {
    if !can_run(session, job) {
        return;
    }
    let workers = Workers::new(job, 2, USER);
    workers.prepare(session).unwrap();
    let mut background = Background::connect(postgres, server, &workers).unwrap();
    let window = Window::after(Duration::ZERO, Duration::from_millis(200));
    background.start();
    // Until both have done a round that ended after the window: however long
    // that takes here.
    background.settle(window.end, Duration::from_secs(60));
    let rounds = background.completed(window);
    background.expect_end();
    for pid in background.backend_pids() {
        kill(Pid::from_raw(*pid), Signal::SIGTERM).unwrap();
    }
    background.join().unwrap();
    assert!(rounds > 0.0, "{rounds} rounds of {job}");
    // The next job divides the table anew.
    session
        .execute(
            "dropping the workers' parts",
            "DROP TABLE IF EXISTS lineitem_part_0, lineitem_part_1",
        )
        .unwrap();
}

/// Whether the packages are there that a job takes; says which are not.
fn can_run(session: &Session, job: Job) -> bool {
    let sql = "SELECT count(*) FROM pg_available_extensions WHERE name = 'plpython3u'";
    if job != Job::LogisticRegression || number(session, sql) > 0 {
        return true;
    }
    eprintln!("{job} is left out: PostgreSQL's plpython3 and python3-sklearn are not installed");
    false
}

/// Of what is late and what is not, the trained model has more right than who says
/// the same of all.
fn a_model_is_better_than_a_guess(session: &Session) {
    let sql = "SELECT logistic_regression() > \
               greatest(avg(late::int), 1 - avg(late::int)) + 0.1 FROM shipment";
    let better: bool = session
        .wait(session.client.query_one(sql, &[]))
        .unwrap()
        .get(0);
    assert!(better);
}

fn every_condition_notices_its_damage(session: &Session) {
    for (clause, damage) in [
        (
            "3.3.2.1",
            "UPDATE warehouse SET w_ytd = w_ytd + 0.01 WHERE w_id = 2",
        ),
        ("3.3.2.1", "DELETE FROM district WHERE d_w_id = 1"),
        (
            "3.3.2.2",
            "UPDATE district SET d_next_o_id = d_next_o_id + 1 WHERE d_w_id = 1 AND d_id = 7",
        ),
        (
            "3.3.2.2",
            "UPDATE new_order SET no_o_id = no_o_id + 100000 WHERE no_w_id = 1 AND no_d_id = 7",
        ),
        (
            "3.3.2.3",
            "DELETE FROM new_order WHERE no_w_id = 2 AND no_d_id = 10 AND no_o_id = 2990",
        ),
        (
            "3.3.2.4",
            "DELETE FROM order_line WHERE ol_w_id = 2 AND ol_d_id = 1 AND ol_o_id = 5 \
             AND ol_number = 1",
        ),
        (
            "3.3.2.4",
            "DELETE FROM order_line WHERE ol_w_id = 2 AND ol_d_id = 1",
        ),
    ] {
        session
            .execute("damaging the data", &format!("BEGIN; {damage}"))
            .unwrap();
        match check::consistency(session) {
            Err(Error::Inconsistent(violation)) => assert_eq!(violation.clause, clause, "{damage}"),
            other => panic!("{damage}: {other:?}"),
        }
        session.execute("repairing the data", "ROLLBACK").unwrap();
    }
    check::consistency(session).unwrap();
}
