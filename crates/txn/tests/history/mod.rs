//! An isolation checker: what a history of transactions says about the database
//! that ran it.
//!
//! Transactions append numbers, each used once, to lists, and read lists. So a
//! list that was read names the transactions that wrote it, in order, and three
//! kinds of dependency can be read off, as in Elle (Kingsbury and Alvaro,
//! VLDB 2020):
//!
//! | edge | means |
//! | --- | --- |
//! | ww | the next element of a list |
//! | wr | the reader of an element that was then the last |
//! | rw | the writer of the first element that a reader did not see |
//!
//! An anomaly is a cycle (Adya): **G0** of ww alone, **G1c** of ww and wr,
//! **G-single** with one rw, **long fork** with several but no two in a row,
//! **G2** with two in a row, which snapshot isolation allows (Fekete et al.,
//! TODS 2005). The checker knows nothing of timestamps: it must find out by
//! itself, or it would believe what it is to doubt.

use std::collections::{BTreeMap, BTreeSet, HashMap};

/// A list's name.
pub(crate) type Key = i32;

/// One operation and what it returned.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Op {
    /// Appended this number.
    Append(Key, u32),
    /// Found these numbers.
    Read(Key, Vec<u32>),
}

/// A transaction that has ended.
#[derive(Clone, Debug, Default)]
pub(crate) struct Txn {
    /// In order.
    pub(crate) ops: Vec<Op>,
    /// Whether it committed.
    pub(crate) committed: bool,
    /// Ticks of a counter that everybody shares: before it began, and after it
    /// had ended.
    pub(crate) began: u64,
    pub(crate) ended: u64,
}

/// What a history contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Anomaly {
    /// An append of a transaction that committed is gone.
    LostUpdate,
    /// Two reads of a list disagree about its order, or an element is twice in it.
    Garbled,
    /// An element that an aborted transaction wrote was read.
    G1a,
    /// A list was read in the middle of another transaction's appends.
    G1b,
    /// A transaction did not see its own append.
    Internal,
    /// A transaction did not see what had committed before it began.
    Stale,
    G0,
    G1c,
    GSingle,
    LongFork,
    G2,
}

use Anomaly::*;

/// What no level may have.
pub(crate) const FORBIDDEN_ALWAYS: [Anomaly; 8] =
    [LostUpdate, Garbled, G1a, G1b, Internal, Stale, G0, G1c];

type Graph = Vec<BTreeSet<usize>>;

/// Finds the anomalies of a history, given the lists as they are at its end.
pub(crate) fn check(history: &[Txn], finals: &BTreeMap<Key, Vec<u32>>) -> BTreeSet<Anomaly> {
    let mut found = BTreeSet::new();
    // Who wrote an element, and whether it was its writer's last to the list.
    let mut writers: HashMap<u32, (usize, bool)> = HashMap::new();
    for (id, txn) in history.iter().enumerate() {
        let mut last: HashMap<Key, u32> = HashMap::new();
        for op in &txn.ops {
            if let Op::Append(key, element) = *op {
                writers.insert(element, (id, true));
                if let Some(before) = last.insert(key, element) {
                    writers.insert(before, (id, false));
                }
            }
        }
    }
    for list in finals.values() {
        let distinct: BTreeSet<&u32> = list.iter().collect();
        if distinct.len() != list.len() {
            found.insert(Garbled);
        }
    }
    let empty = Vec::new();
    let (mut ww, mut wr, mut rw) = (graph(history), graph(history), graph(history));
    for (id, txn) in history.iter().enumerate().filter(|(_, txn)| txn.committed) {
        let mut own: HashMap<Key, Vec<u32>> = HashMap::new();
        for op in &txn.ops {
            match op {
                Op::Append(key, element) => {
                    own.entry(*key).or_default().push(*element);
                    let list = finals.get(key).unwrap_or(&empty);
                    let Some(at) = list.iter().position(|known| known == element) else {
                        found.insert(LostUpdate);
                        continue;
                    };
                    if at > 0 {
                        edge(&mut ww, writers[&list[at - 1]].0, id);
                    }
                }
                Op::Read(key, list) => {
                    let own = own.get(key).map_or(&[][..], Vec::as_slice);
                    if !list.ends_with(own) {
                        found.insert(Internal);
                        continue;
                    }
                    let others = &list[..list.len() - own.len()];
                    let last = finals.get(key).unwrap_or(&empty);
                    for element in others {
                        if !history[writers[element].0].committed {
                            found.insert(G1a);
                        }
                    }
                    if !last.starts_with(others) {
                        found.insert(Garbled);
                        continue;
                    }
                    if let Some(element) = others.last() {
                        let (writer, complete) = writers[element];
                        if !complete && writer != id {
                            found.insert(G1b);
                        }
                        edge(&mut wr, writer, id);
                    }
                    let unseen = last[others.len()..].iter();
                    let mut unseen = unseen.map(|element| writers[element].0);
                    if unseen
                        .clone()
                        .any(|writer| history[writer].ended < txn.began)
                    {
                        found.insert(Stale);
                    }
                    if let Some(next) = unseen.find(|&writer| writer != id) {
                        edge(&mut rw, id, next);
                    }
                }
            }
        }
    }
    let flow = union(&ww, &wr);
    if has_cycle(&ww) {
        found.insert(G0);
    }
    if has_cycle(&flow) {
        found.insert(G1c);
    }
    if one_rw(&flow, &rw) {
        found.insert(GSingle);
    } else if !has_cycle(&flow) && has_cycle(&union(&flow, &then(&rw, &flow))) {
        found.insert(LongFork);
    }
    // Any cycle that is none of the above has two rw in a row.
    let cyclic = has_cycle(&union(&flow, &rw));
    if cyclic
        && ![G0, G1c, GSingle, LongFork]
            .iter()
            .any(|other| found.contains(other))
    {
        found.insert(G2);
    }
    found
}

fn graph(history: &[Txn]) -> Graph {
    vec![BTreeSet::new(); history.len()]
}

fn edge(graph: &mut Graph, from: usize, to: usize) {
    if from != to {
        graph[from].insert(to);
    }
}

fn union(a: &Graph, b: &Graph) -> Graph {
    a.iter().zip(b).map(|(a, b)| a | b).collect()
}

/// An edge for every edge of `a` followed by one of `b`.
fn then(a: &Graph, b: &Graph) -> Graph {
    let two = |middles: &BTreeSet<usize>| {
        middles
            .iter()
            .flat_map(|&at| b[at].iter().copied())
            .collect()
    };
    a.iter().map(two).collect()
}

/// Whether there is a cycle: Kahn's algorithm does not get to the nodes of one.
/// Self-loops, which only `then` makes, are cycles.
fn has_cycle(graph: &Graph) -> bool {
    let mut incoming = vec![0; graph.len()];
    graph.iter().flatten().for_each(|&to| incoming[to] += 1);
    let mut free: Vec<usize> = (0..graph.len()).filter(|&at| incoming[at] == 0).collect();
    let mut left = graph.len();
    while let Some(at) = free.pop() {
        left -= 1;
        for &to in &graph[at] {
            incoming[to] -= 1;
            if incoming[to] == 0 {
                free.push(to);
            }
        }
    }
    left > 0
}

/// Whether some rw edge is closed to a cycle by `flow` alone.
fn one_rw(flow: &Graph, rw: &Graph) -> bool {
    rw.iter().enumerate().any(|(from, tos)| {
        tos.iter().any(|&to| {
            let mut seen = BTreeSet::from([to]);
            let mut left = vec![to];
            while let Some(at) = left.pop() {
                if at == from {
                    return true;
                }
                left.extend(flow[at].iter().copied().filter(|&next| seen.insert(next)));
            }
            false
        })
    })
}

/// The checker finds what is put before it.
#[cfg(test)]
mod tests {
    use super::*;

    fn txn(ops: &[Op]) -> Txn {
        Txn {
            ops: ops.to_vec(),
            committed: true,
            began: 0,
            ended: 100,
        }
    }

    fn append(key: Key, element: u32) -> Op {
        Op::Append(key, element)
    }

    fn read(key: Key, list: &[u32]) -> Op {
        Op::Read(key, list.to_vec())
    }

    /// The anomalies of a history whose lists end as given, X first.
    fn found(history: &[Txn], x: &[u32], y: &[u32]) -> Vec<Anomaly> {
        let finals = BTreeMap::from([(1, x.to_vec()), (2, y.to_vec())]);
        check(history, &finals).into_iter().collect()
    }

    #[test]
    fn a_serial_history_has_nothing() {
        let history = [
            txn(&[append(1, 1), append(2, 2), read(1, &[1])]),
            txn(&[read(1, &[1]), append(1, 3), read(1, &[1, 3])]),
            txn(&[read(1, &[1, 3]), read(2, &[2])]),
        ];
        assert_eq!(found(&history, &[1, 3], &[2]), []);
    }

    #[test]
    fn cycles_have_their_names() {
        let mixed = [
            txn(&[append(1, 1), append(2, 2)]),
            txn(&[append(1, 3), append(2, 4)]),
        ];
        assert_eq!(found(&mixed, &[1, 3], &[4, 2]), [G0, G1c]);
        let circular = [
            txn(&[append(1, 1), read(2, &[2])]),
            txn(&[append(2, 2), read(1, &[1])]),
        ];
        assert_eq!(found(&circular, &[1], &[2]), [G1c]);
        let skewed = [
            txn(&[append(1, 1), append(2, 2)]),
            txn(&[read(1, &[]), read(2, &[2])]),
        ];
        assert_eq!(found(&skewed, &[1], &[2]), [GSingle]);
        let fork = [
            txn(&[append(1, 1)]),
            txn(&[append(2, 2)]),
            txn(&[read(1, &[1]), read(2, &[])]),
            txn(&[read(1, &[]), read(2, &[2])]),
        ];
        assert_eq!(found(&fork, &[1], &[2]), [LongFork]);
        let write_skew = [
            txn(&[read(1, &[]), append(2, 2)]),
            txn(&[read(2, &[]), append(1, 1)]),
        ];
        assert_eq!(found(&write_skew, &[1], &[2]), [G2]);
        let read_only = [
            txn(&[read(1, &[]), read(2, &[]), append(1, 1)]),
            txn(&[append(2, 2)]),
            txn(&[read(1, &[]), read(2, &[2])]),
        ];
        assert_eq!(found(&read_only, &[1], &[2]), [G2]);
    }

    #[test]
    fn single_reads_are_judged() {
        let aborted = Txn {
            committed: false,
            ..txn(&[append(1, 1)])
        };
        let history = [aborted, txn(&[read(1, &[1])])];
        assert_eq!(found(&history, &[1], &[]), [G1a]);
        let history = [txn(&[append(1, 1), append(1, 2)]), txn(&[read(1, &[1])])];
        assert!(found(&history, &[1, 2], &[]).contains(&G1b));
        assert_eq!(found(&[txn(&[append(1, 1)])], &[], &[]), [LostUpdate]);
        let history = [
            txn(&[append(1, 1)]),
            txn(&[append(1, 2)]),
            txn(&[read(1, &[2, 1])]),
        ];
        assert_eq!(found(&history, &[1, 2], &[]), [Garbled]);
        assert_eq!(
            found(&[txn(&[append(1, 1), read(1, &[])])], &[1], &[]),
            [Internal]
        );
        let late = Txn {
            began: 101,
            ended: 102,
            ..txn(&[read(1, &[])])
        };
        assert_eq!(found(&[txn(&[append(1, 1)]), late], &[1], &[]), [Stale]);
    }
}
