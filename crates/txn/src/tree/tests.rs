//! The tree against a model, alone and under threads.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, OnceLock};

use proptest::prelude::*;

use super::*;
use crate::key::Span;
use crate::sync::Relaxed;

/// The heap of all trees here.
fn heap() -> &'static Arc<Heap> {
    static HEAP: OnceLock<Arc<Heap>> = OnceLock::new();
    HEAP.get_or_init(Arc::default)
}

/// Keeps everything until the end, so that these tests need no epochs.
struct Hoard {
    pool: Pool,
    nodes: Vec<*mut Node>,
    separators: Vec<Thin<()>>,
}

impl Default for Hoard {
    fn default() -> Hoard {
        Hoard {
            pool: Pool::new(heap()),
            nodes: Vec::new(),
            separators: Vec::new(),
        }
    }
}

impl Keeper for Hoard {
    fn node(&mut self, layout: Layout) -> NonNull<u8> {
        self.pool.take(layout)
    }
    fn retire_node(&mut self, node: *mut Node) {
        self.nodes.push(node);
    }
    fn retire_separator(&mut self, separator: Thin<()>) {
        self.separators.push(separator);
    }
    fn grew(&mut self, _: usize) {}
}

impl Drop for Hoard {
    fn drop(&mut self) {
        // SAFETY: the tests end their threads first.
        unsafe {
            for &node in &self.nodes {
                free_node(node, Some(&mut self.pool));
            }
            self.separators
                .iter()
                .for_each(|separator| separator.free());
        }
    }
}

type Entry = Thin<AtomicU64>;

fn entry(key: &[u8]) -> Entry {
    Thin::new(AtomicU64::new(0), 0, key)
}

/// NodeSet for the entry's key and adds the entry.
fn put(tree: &Tree<AtomicU64>, entry: Entry, hoard: &mut Hoard) -> Result<(), Entry> {
    // SAFETY: the tests free entries at their end.
    let spot = tree.spot(unsafe { entry.bytes() }, None);
    match spot.entry {
        Some(existing) => Err(existing),
        // SAFETY: as above.
        None => unsafe { tree.insert(entry, &spot, hoard) }.map(|_| ()),
    }
}

fn key_of(entry: Entry) -> Vec<u8> {
    // SAFETY: the tests free entries at their end.
    unsafe { entry.bytes() }.to_vec()
}

fn scan(tree: &Tree<AtomicU64>, span: Span, direction: Direction) -> Vec<Vec<u8>> {
    let whole = (
        span.from.as_slice().to_vec(),
        span.end().map(<[u8]>::to_vec),
    );
    let mut scan = LeafScan::new(span, direction);
    let mut keys = Vec::new();
    // What the leaves cover is the range, each part once.
    let mut parts = Vec::new();
    while scan.next_leaf(tree, |_, from, to| {
        parts.push((from.to_vec(), to.map(<[u8]>::to_vec)))
    }) {
        // What is ahead in a leaf is what comes next, and no more.
        let distances = 0..=FANOUT;
        let ahead: Vec<Entry> = distances.map_while(|at| scan.ahead(at)).collect();
        let before = keys.len();
        while let Some(entry) = scan.next_here() {
            assert_eq!(scan.is_at_first(), keys.len() == before);
            assert!(ahead.get(keys.len() - before) == Some(&entry));
            keys.push(key_of(entry));
        }
        assert_eq!(ahead.len(), keys.len() - before);
    }
    if direction == Direction::Backward {
        parts.reverse();
    }
    assert!(
        parts
            .windows(2)
            .all(|pair| pair[0].1.as_ref() == Some(&pair[1].0))
    );
    if let (Some(first), Some(last)) = (parts.first(), parts.last()) {
        assert_eq!(
            (&first.0[..], last.1.as_deref()),
            (&whole.0[..], whole.1.as_deref())
        );
    }
    keys
}

#[derive(Clone, Debug)]
enum Op {
    Insert(Vec<u8>),
    Remove(Vec<u8>),
    Lookup(Vec<u8>),
    Scan(Vec<u8>, Option<Vec<u8>>),
}

/// Keys that collide: few bytes, many of them zero, some longer than what a
/// node keeps beside its slots.
fn key() -> impl Strategy<Value = Vec<u8>> {
    let byte = || prop_oneof![Just(0u8), Just(1), Just(255)];
    prop_oneof![
        proptest::collection::vec(byte(), 1..4),
        proptest::collection::vec(byte(), 3).prop_map(|end| [&[7; 15], &end[..]].concat()),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => key().prop_map(Op::Insert),
        3 => key().prop_map(Op::Remove),
        1 => key().prop_map(Op::Lookup),
        1 => (key(), proptest::option::of(key())).prop_map(|(from, to)| Op::Scan(from, to)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 3 } else { 300 }, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_tree_does_what_a_sorted_map_does(ops in proptest::collection::vec(op(), 1..400)) {
        let mut hoard = Hoard::default();
        let mut tree = Tree::new(heap());
        let mut model = BTreeMap::new();
        let mut gone = Vec::new();
        for op in ops {
            match op {
                Op::Insert(key) => {
                    let new = entry(&key);
                    match put(&tree, new, &mut hoard) {
                        Ok(()) => prop_assert!(model.insert(key, new).is_none()),
                        Err(old) => {
                            prop_assert!(model[&key] == old);
                            gone.push(new);
                        }
                    }
                }
                Op::Remove(key) => {
                    if let Some(old) = model.remove(&key) {
                        prop_assert!(tree.remove(old, &mut hoard));
                        prop_assert!(!tree.remove(old, &mut hoard));
                        gone.push(old);
                    }
                }
                Op::Lookup(key) => {
                    prop_assert!(tree.lookup(&key).entry == model.get(&key).copied());
                }
                Op::Scan(from, to) => {
                    let mut expected: Vec<Vec<u8>> = model
                        .range(from.clone()..)
                        .map(|(key, _)| key.clone())
                        .take_while(|key| to.as_ref().is_none_or(|to| key < to))
                        .collect();
                    let range = || Span::new(&from, to.as_deref());
                    prop_assert_eq!(&scan(&tree, range(), Direction::Forward), &expected);
                    expected.reverse();
                    prop_assert_eq!(&scan(&tree, range(), Direction::Backward), &expected);
                }
            }
        }
        let mut all = Vec::new();
        tree.for_each(|entry| all.push(entry));
        prop_assert_eq!(all.iter().map(|&entry| key_of(entry)).collect::<Vec<_>>(), model.keys().cloned().collect::<Vec<_>>());
        // SAFETY: nobody uses the tree's entries any more.
        all.iter().chain(&gone).for_each(|entry| unsafe { entry.free() });
    }
}

#[test]
fn emptied_trees_give_their_nodes_back() {
    let mut hoard = Hoard::default();
    let mut tree = Tree::new(heap());
    let entries: Vec<Entry> = (0..1000u32).map(|at| entry(&at.to_be_bytes())).collect();
    for &entry in &entries {
        put(&tree, entry, &mut hoard).ok().unwrap();
    }
    for &entry in &entries {
        assert!(tree.remove(entry, &mut hoard));
    }
    let mut nodes = 0;
    tree.each_node(&mut |_| nodes += 1);
    // One leaf, and at most the way to it.
    assert!(nodes < 5, "{nodes} nodes are left");
    // SAFETY: they have left the tree, which nobody else uses.
    entries.iter().for_each(|entry| unsafe { entry.free() });
}

#[test]
fn a_leaf_tells_of_additions_and_not_of_removals() {
    let mut hoard = Hoard::default();
    let tree = Tree::new(heap());
    let entries: Vec<Entry> = (0..9u32).map(|at| entry(&at.to_be_bytes())).collect();
    let insert = |at: usize, hoard: &mut Hoard| {
        put(&tree, entries[at], hoard).ok().unwrap();
    };
    insert(0, &mut hoard);
    insert(1, &mut hoard);
    let seen = tree.lookup(&1u32.to_be_bytes()).leaf;
    tree.remove(entries[0], &mut hoard);
    assert!(seen.is_unchanged());
    insert(2, &mut hoard);
    assert!(!seen.is_unchanged());
    // So does a split, to the half that stays.
    let seen = tree.lookup(&1u32.to_be_bytes()).leaf;
    (3..9).for_each(|at| insert(at, &mut hoard));
    assert!(!seen.is_unchanged());
    // And a leaf that has left the tree.
    let seen = tree.lookup(&1u32.to_be_bytes()).leaf;
    entries[1..].iter().for_each(|&entry| {
        tree.remove(entry, &mut hoard);
    });
    assert!(!seen.is_unchanged());
    // SAFETY: nobody uses them any more.
    entries.iter().for_each(|entry| unsafe { entry.free() });
}

/// Writers own every fourth key each and add and remove them; readers check
/// that keys which are always there are always found, in order, both ways.
#[test]
fn readers_see_what_is_always_there() {
    const KEYS: u32 = if cfg!(miri) { 40 } else { 400 };
    const ROUNDS: usize = if cfg!(miri) { 3 } else { 60 };
    let tree = Tree::new(heap());
    let entries: Vec<Entry> = (0..KEYS).map(|at| entry(&at.to_be_bytes())).collect();
    let mut hoard = Hoard::default();
    for at in (0..KEYS as usize).step_by(4) {
        put(&tree, entries[at], &mut hoard).ok().unwrap();
    }
    struct Shared<'a>(&'a [Entry], &'a Tree<AtomicU64>);
    // SAFETY: entries are atomics and constant bytes.
    unsafe impl Sync for Shared<'_> {}
    let shared = Shared(&entries, &tree);
    let done = AtomicBool::new(false);
    let reads = AtomicU64::new(0);
    let hoards: Vec<Vec<*mut ()>> = std::thread::scope(|scope| {
        let shared = &shared;
        let (done, reads) = (&done, &reads);
        let writers: Vec<_> = (1..=2)
            .map(|part| {
                scope.spawn(move || {
                    let Shared(entries, tree) = shared;
                    let mut hoard = Hoard::default();
                    for _ in 0..ROUNDS {
                        for at in (part..KEYS as usize).step_by(4) {
                            put(tree, entries[at], &mut hoard).ok().unwrap();
                        }
                        for at in (part..KEYS as usize).step_by(4) {
                            assert!(tree.remove(entries[at], &mut hoard));
                        }
                    }
                    // Freed after the readers have ended.
                    let nodes = std::mem::take(&mut hoard.nodes);
                    let separators = std::mem::take(&mut hoard.separators);
                    let nodes: Vec<usize> =
                        nodes.iter().map(|node| node.expose_provenance()).collect();
                    let separators: Vec<usize> = separators
                        .iter()
                        .map(|separator| separator.as_ptr().expose_provenance())
                        .collect();
                    (nodes, separators)
                })
            })
            .collect();
        let reader = scope.spawn(move || {
            let Shared(_, tree) = shared;
            while !done.load(Relaxed) {
                for direction in [Direction::Forward, Direction::Backward] {
                    let mut keys: Vec<u32> = scan(tree, Span::new(&[], None), direction)
                        .iter()
                        .map(|key| u32::from_be_bytes(key[..].try_into().unwrap()))
                        .collect();
                    if direction == Direction::Backward {
                        keys.reverse();
                    }
                    assert!(keys.is_sorted_by(|a, b| a < b));
                    let always = keys.iter().filter(|key| *key % 4 == 0).count();
                    assert_eq!(always, KEYS as usize / 4);
                }
                for at in (0..KEYS).step_by(4) {
                    assert!(tree.lookup(&at.to_be_bytes()).entry.is_some());
                    assert!(tree.lookup(&(at + 3).to_be_bytes()).entry.is_none());
                }
                reads.fetch_add(1, Relaxed);
            }
        });
        let garbage: Vec<_> = writers
            .into_iter()
            .map(|writer| writer.join().unwrap())
            .collect();
        done.store(true, Relaxed);
        reader.join().unwrap();
        for (nodes, separators) in garbage {
            hoard.nodes.extend(
                nodes
                    .into_iter()
                    .map(std::ptr::with_exposed_provenance_mut::<Node>),
            );
            // SAFETY: they came from `as_ptr` above.
            hoard
                .separators
                .extend(separators.into_iter().map(|at| unsafe {
                    Thin::from_ptr(std::ptr::with_exposed_provenance_mut(at)).unwrap()
                }));
        }
        Vec::new()
    });
    drop(hoards);
    assert!(reads.load(Relaxed) > 0);
    assert_eq!(
        scan(&tree, Span::new(&[], None), Direction::Forward).len(),
        KEYS as usize / 4
    );
    drop(tree);
    // SAFETY: nobody uses them any more.
    entries.iter().for_each(|entry| unsafe { entry.free() });
}

/// What is added in order fills its leaves, but for the last.
#[test]
fn appended_leaves_are_dense() {
    const KEYS: u32 = 300;
    let mut hoard = Hoard::default();
    let mut tree = Tree::new(heap());
    let entries: Vec<Entry> = (0..KEYS).map(|at| entry(&at.to_be_bytes())).collect();
    for &entry in &entries {
        put(&tree, entry, &mut hoard).ok().unwrap();
    }
    let (mut leaves, mut inner) = (0, 0);
    tree.each_node(&mut |node| match node.is_inner() {
        true => {
            assert!(node.count() > 0, "an inner node has two children");
            inner += 1;
        }
        false => leaves += 1,
    });
    let full = KEYS as usize / (FANOUT - 1) + 1;
    assert!(leaves <= full, "{leaves} leaves, {inner} nodes above them");
    for &entry in &entries {
        assert!(tree.lookup(&key_of(entry)).entry == Some(entry));
    }
    drop(tree);
    // SAFETY: the tree is gone.
    entries.iter().for_each(|entry| unsafe { entry.free() });
}

/// Between a look-up and the insertion, others add to the leaf, add the very key,
/// and split the leaf: the insertion does not go where it no longer belongs.
#[test]
fn an_insertion_does_not_trust_an_old_look_up() {
    let mut hoard = Hoard::default();
    let tree = Tree::new(heap());
    let entries: Vec<Entry> = (0..20u32).map(|at| entry(&at.to_be_bytes())).collect();
    let key = |at: usize| (at as u32).to_be_bytes();
    let (ten, fifteen) = (tree.spot(&key(10), None), tree.spot(&key(15), None));
    put(&tree, entries[3], &mut hoard).ok().unwrap();
    // SAFETY: the entries are freed below, after the tree.
    unsafe { tree.insert(entries[10], &ten, &mut hoard) }
        .ok()
        .unwrap();
    // SAFETY: as above.
    let twice = unsafe { tree.insert(entries[10], &ten, &mut hoard) };
    assert!(twice.err() == Some(entries[10]));
    for at in [0, 1, 2, 4, 5, 6, 7, 8, 9, 16, 17] {
        put(&tree, entries[at], &mut hoard).ok().unwrap();
    }
    // SAFETY: as above.
    unsafe { tree.insert(entries[15], &fifteen, &mut hoard) }
        .ok()
        .unwrap();
    let all = Span::new(&[], None);
    let keys = scan(&tree, all, Direction::Forward);
    assert!(keys.is_sorted() && keys.len() == 14, "{keys:?}");
    drop(tree);
    // SAFETY: the tree is gone.
    entries.iter().for_each(|entry| unsafe { entry.free() });
}

/// Keys that follow one another are put behind each other without a search, and
/// only where nothing lies between, not beyond the leaf's end, and not when others
/// have been at the leaf.
#[test]
fn a_finger_is_trusted_only_right_behind_it() {
    let mut hoard = Hoard::default();
    let tree = Tree::new(heap());
    let entries: Vec<Entry> = (0..100u32).map(|at| entry(&at.to_be_bytes())).collect();
    let key = |at: usize| (at as u32).to_be_bytes();
    let insert = |at: usize, last: Option<&Finger<AtomicU64>>, hoard: &mut Hoard| {
        let spot = tree.spot(&key(at), last);
        assert!(spot.entry.is_none());
        // SAFETY: the entries are freed below, after the tree.
        unsafe { tree.insert(entries[at], &spot, hoard) }
            .ok()
            .unwrap()
    };
    insert(30, None, &mut hoard);
    let ten = insert(10, None, &mut hoard).expect("there was room");
    assert!(ten.spot(&key(11)).is_some() && ten.spot(&key(29)).is_some());
    // Not behind it: the key before, its own, the next one there is, one beyond.
    assert!(
        [9, 10, 30, 31]
            .iter()
            .all(|&at| ten.spot(&key(at)).is_none())
    );
    let eleven = insert(11, Some(&ten), &mut hoard).expect("there was room");
    assert!(eleven.spot(&key(12)).is_some());
    insert(20, None, &mut hoard);
    // The latch has moved on.
    assert!(ten.spot(&key(12)).is_none() && eleven.spot(&key(12)).is_none());
    insert(12, Some(&eleven), &mut hoard);
    // Leaves that are bounded: nothing is put behind their last key that belongs
    // to the next one.
    for at in (40..100).rev().chain(0..10).chain(13..20).chain(21..30) {
        insert(at, None, &mut hoard);
    }
    let mut last = None;
    for at in 31..40 {
        last = insert(at, last.as_ref(), &mut hoard);
        if let Some(last) = &last {
            assert!(last.spot(&key(40)).is_none() && last.spot(&key(41)).is_none());
        }
    }
    let keys = scan(&tree, Span::new(&[], None), Direction::Forward);
    assert!(keys.is_sorted() && keys.len() == 100, "{keys:?}");
    for (at, &entry) in entries.iter().enumerate() {
        assert!(tree.lookup(&key(at)).entry == Some(entry));
    }
    drop(tree);
    // SAFETY: the tree is gone.
    entries.iter().for_each(|entry| unsafe { entry.free() });
}

/// Another thread has split or emptied the leaf between the look that found it full and the
/// split.
#[test]
fn a_leaf_that_has_room_again_is_not_split() {
    let tree = Tree::<AtomicU64>::new(heap());
    let leaf = tree.root();
    let mut path = Path::new();
    path.push(leaf, leaf.latch().read().unwrap(), 0);
    assert!(!leaf.is_full());
    assert_eq!(tree.split(&path, &mut Hoard::default()), None);
    assert!(tree.root() == leaf);
}
