//! What one thread does per second: point reads, updates, inserts, scans.
//!
//! `cargo bench -p giveway-txn` prints one line each. Goal: to see within seconds
//! whether a change costs anything. Not a goal: comparison with other engines,
//! which is what `giveway bench preempt engines` is for.

use std::hint::black_box;
use std::time::Duration;

use giveway_txn::{Database, Direction, Isolation, KeyRange, Options, Schema, TxnOptions, Type};

const ROWS: i32 = 100_000;
const TIME: Duration = Duration::from_millis(700);

/// CPU time of this thread: other work on the machine is not counted.
fn cpu_time() -> Duration {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the clock exists on Linux and the pointer is to a `timespec`.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut now) };
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// Repeats `work`, which does `per_call` things, and prints how many of them in
/// a second of CPU time, in the best of three runs.
fn measure(name: &str, per_call: u32, mut work: impl FnMut(i32)) {
    let mut random = 1u32;
    let mut best = 0.0f64;
    for _ in 0..3 {
        let (mut calls, start) = (0u64, cpu_time());
        while cpu_time() - start < TIME {
            for _ in 0..100 {
                random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                work((random >> 8) as i32 % ROWS);
            }
            calls += 100;
        }
        let things = calls as f64 * f64::from(per_call);
        best = best.max(things / (cpu_time() - start).as_secs_f64());
    }
    println!("{name:<44} {:>12.0} /s", best);
}

fn main() {
    let db = Database::in_memory(Options::default());
    let schema = Schema::builder("stock")
        .column("w", Type::I32)
        .column("i", Type::I32)
        .column("quantity", Type::I32)
        .column("ytd", Type::I64)
        .column("data", Type::Text)
        .primary_key(["w", "i"])
        .build();
    let stock = db.create_table(schema.unwrap()).unwrap();
    for i in 0..ROWS {
        let done = db.run(TxnOptions::default(), |txn| {
            let mut row = stock.row();
            row.set_i32(0, i % 10).set_i32(1, i).set_i32(2, 50);
            row.set_i64(3, 0)
                .set_text(4, "fifty bytes or so of something that is not read");
            txn.insert(&stock, &row)
        });
        done.unwrap();
    }
    let levels = [
        ("snapshot", Isolation::Snapshot),
        ("serializable", Isolation::Serializable),
    ];
    for (name, isolation) in levels {
        let options = || TxnOptions {
            isolation,
            ..TxnOptions::default()
        };
        measure(&format!("{name}: begin and commit"), 1, |_| {
            db.begin(options()).unwrap().commit().unwrap();
        });
        measure(
            &format!("{name}: point reads, 10 in a transaction"),
            10,
            |i| {
                let txn = db.begin(options()).unwrap();
                for step in 0..10 {
                    let i = (i + step * 7919) % ROWS;
                    black_box(txn.get(&stock, (i % 10, i)).unwrap().unwrap().i32(2));
                }
                txn.commit().unwrap();
            },
        );
        measure(&format!("{name}: update and commit"), 1, |i| {
            let txn = db.begin(options()).unwrap();
            let change = txn.update(&stock, (i % 10, i), |row| {
                row.set_i64(3, row.i64(3) + 1);
            });
            change.unwrap();
            txn.commit().unwrap();
        });
        measure(
            &format!("{name}: rows scanned, 100 in a transaction"),
            100,
            |i| {
                let txn = db.begin(options()).unwrap();
                let range = KeyRange::at_least((i % 10, i / 2));
                let scan = txn.scan(&stock, range, Direction::Forward).unwrap();
                black_box(scan.take(100).map(|row| row.unwrap().i32(2)).sum::<i32>());
                txn.commit().unwrap();
            },
        );
        let mut next = 0;
        measure(&format!("{name}: insert and delete, committed"), 1, |_| {
            next += 1;
            let txn = db.begin(options()).unwrap();
            let mut row = stock.row();
            row.set_i32(0, 11).set_i32(1, next).set_i32(2, 0);
            row.set_i64(3, 0).set_text(4, "short");
            txn.insert(&stock, &row).unwrap();
            if next > 100 {
                txn.delete(&stock, (11, next - 100)).unwrap();
            }
            txn.commit().unwrap();
        });
        let txn = db.begin(options()).unwrap();
        for i in next - 99..=next {
            txn.delete(&stock, (11, i)).unwrap();
        }
        txn.commit().unwrap();
    }
    println!("{:#?}", db.stats());
}
