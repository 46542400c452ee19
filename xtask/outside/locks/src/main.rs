//! Two groups of threads share a mutex by weight, with giveway-locks alone.
//!
//! Both groups want the mutex all the time. Orders have three times the weight of
//! reports, so they get about three times the hold time, although a report holds the
//! mutex for longer at a time.

use std::error::Error;
use std::hint::spin_loop;
use std::thread;
use std::time::{Duration, Instant};

use giveway_locks::{Group, Mutex};

const TIME: Duration = Duration::from_millis(1500);

static TABLE: Mutex<u64> = Mutex::new(0);

/// Takes the mutex until the end, and holds it for this long at a time.
fn work(group: Group, section: Duration, end: Instant) {
    giveway_locks::thread::join(group);
    while Instant::now() < end {
        let mut rows = TABLE.lock();
        *rows += 1;
        let since = Instant::now();
        while since.elapsed() < section {
            spin_loop();
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let orders = Group::new("orders")?.weight(300)?;
    let reports = Group::new("reports")?.weight(100)?;
    let end = Instant::now() + TIME;
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| work(orders, Duration::from_micros(20), end));
            scope.spawn(|| work(reports, Duration::from_micros(60), end));
        }
    });
    let [had_orders, had_reports] = [orders, reports].map(|group| group.statistics().hold_ns);
    let ratio = had_orders as f64 / had_reports as f64;
    println!(
        "{} sections; orders held the mutex {ratio:.2} times as long",
        TABLE.lock()
    );
    // Without weights the ratio would be a third.
    if ratio < 1.5 {
        return Err("the mutex was not shared by weight".into());
    }
    Ok(())
}
