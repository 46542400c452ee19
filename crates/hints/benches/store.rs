//! What telling costs: a store to the thread's slot, and a held lock recorded
//! and struck off.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use giveway_hints::Tier;
use giveway_hints::slot::{NAME, SLOT_SIZE, Table};

fn stores(criterion: &mut Criterion) {
    let dir = tempfile::tempdir_in("/dev/shm").expect("a directory in memory");
    let mut pages = vec![0; 2 * SLOT_SIZE];
    pages[..8].copy_from_slice(b"giveway\0");
    pages[8] = 1;
    pages[12] = 2;
    std::fs::write(dir.path().join(NAME), pages).expect("a file with the layout of a table");
    let table = Table::open(Some(dir.path())).expect("a table");
    let slot = table.attach().expect("a slot");
    criterion.bench_function("set_tier", |b| {
        b.iter(|| slot.set_tier(black_box(Tier::Background)));
    });
    criterion.bench_function("hold and release", |b| {
        b.iter(|| {
            slot.hold(black_box(7));
            slot.release(black_box(7));
        });
    });
    criterion.bench_function("wait and wait_done", |b| {
        b.iter(|| {
            slot.wait(black_box(7));
            slot.wait_done();
        });
    });
}

criterion_group!(benches, stores);
criterion_main!(benches);
