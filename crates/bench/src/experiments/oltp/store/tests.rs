//! Every engine that is here does what a map does.

use std::collections::BTreeMap;
use std::thread;

use rand::{Rng as _, RngCore as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

use super::*;

fn engines() -> impl Iterator<Item = OltpEngine> {
    let all = OltpEngine::ALL.iter().copied();
    all.filter(|engine| absent(*engine).is_none())
}

fn size(columns: usize, threads: usize) -> Size {
    Size {
        rows: 1_000,
        columns,
        threads,
    }
}

fn key(number: u32) -> Vec<u8> {
    let mut key = Vec::new();
    crate::experiments::oltp::ycsb::put_key(u64::from(number), &mut key);
    key
}

#[test]
fn every_engine_answers_as_a_map_does() {
    for engine in engines() {
        for columns in [1, 10] {
            let dir = tempfile::tempdir().unwrap();
            let (store, version) = open(engine, size(columns, 1), dir.path()).unwrap();
            assert!(!version.is_empty());
            let mut map = BTreeMap::new();
            let mut done = store.with_session(&mut |session| {
                load(session, &mut map);
                Ok(())
            });
            done = done.and_then(|()| store.settle());
            done = done.and_then(|()| {
                store.with_session(&mut |session| {
                    check(session, columns, &mut map);
                    Ok(())
                })
            });
            done.unwrap_or_else(|failed| panic!("{engine}: {failed:?}"));
        }
    }
}

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

fn load(session: &mut dyn Session, map: &mut Rows) {
    let mut random = ChaCha8Rng::seed_from_u64(3);
    for number in 0..200 {
        let mut row = vec![0; ROW_BYTES];
        random.fill_bytes(&mut row);
        session.insert(&key(number), &row).unwrap();
        map.insert(key(number), row);
    }
}

/// A session after that of the load, and after what the load left was done.
fn check(session: &mut dyn Session, columns: usize, map: &mut Rows) {
    let mut random = ChaCha8Rng::seed_from_u64(5);
    let mut value = vec![0; ROW_BYTES / columns];
    let mut answer = vec![1, 2, 3];
    for _ in 0..1_000 {
        let key = key(random.random_range(0..200));
        random.fill_bytes(&mut value);
        let column = random.random_range(0..columns);
        let change = Change {
            column,
            value: &value,
        };
        match random.random_range(0..4) {
            0 => {
                session.read(&key, &mut answer).unwrap();
                assert_eq!(answer, map[&key]);
            }
            1 => {
                session.update(&key, change).unwrap();
                change.put(map.get_mut(&key).unwrap());
            }
            2 => {
                session.read_and_update(&key, change, &mut answer).unwrap();
                assert_eq!(answer, map[&key]);
                change.put(map.get_mut(&key).unwrap());
            }
            _ => {
                let count = random.random_range(1..=100);
                let expected = map.range(key.clone()..).take(count);
                let expected = Vec::from_iter(expected.map(|(_, row)| row.as_slice()));
                let seen = session.scan(&key, count, &mut answer).unwrap();
                assert_eq!(seen, expected.len());
                assert_eq!(answer, expected.concat());
            }
        }
    }
    let missing = session.read(&key(1_000), &mut answer).unwrap_err();
    assert!(missing.0.contains("missing"), "{missing:?}");
}

/// Two threads count in two columns of one row.
#[test]
fn updates_of_one_row_by_two_threads_are_all_kept() {
    const COUNT: u64 = 300;
    for engine in engines() {
        let dir = tempfile::tempdir().unwrap();
        let (store, _) = open(engine, size(10, 2), dir.path()).unwrap();
        let insert = store.with_session(&mut |session| session.insert(&key(0), &[0; ROW_BYTES]));
        insert.unwrap();
        thread::scope(|scope| {
            for column in [2, 7] {
                let store = &store;
                scope.spawn(move || {
                    let done = store.with_session(&mut |session| {
                        let mut value = [0; ROW_BYTES / 10];
                        let mut row = Vec::new();
                        for count in 1..=COUNT {
                            value[..8].copy_from_slice(&count.to_le_bytes());
                            let change = Change {
                                column,
                                value: &value,
                            };
                            match count % 2 {
                                0 => session.update(&key(0), change)?,
                                _ => session.read_and_update(&key(0), change, &mut row)?,
                            }
                        }
                        Ok(())
                    });
                    done.unwrap_or_else(|failed| panic!("{engine}: {failed:?}"));
                });
            }
        });
        let mut row = Vec::new();
        let read = store.with_session(&mut |session| session.read(&key(0), &mut row));
        read.unwrap();
        for column in [2, 7] {
            assert_eq!(row[column * 100..][..8], COUNT.to_le_bytes(), "{engine}");
        }
    }
}

#[test]
fn an_engine_that_is_not_here_is_named_with_the_remedy() {
    for engine in OltpEngine::ALL {
        if let Some(error) = absent(*engine) {
            let error = error.to_string();
            assert!(error.contains(&format!("leave {engine} out")), "{error}");
            let dir = tempfile::tempdir().unwrap();
            assert!(open(*engine, size(1, 1), dir.path()).is_err());
        }
    }
}
