//! Rows by experiment, swept value and method.

use crate::experiments::preempt::{
    DeliveryRow, Latency, Measured, Mixed, Operation, Overhead, PreemptExperiment, PreemptRow,
    Throughput,
};
use crate::harness::number::Spread;
use crate::report::Report;

/// The repeats of one method at one value.
#[derive(Clone, Debug)]
pub(crate) struct Cell<'a> {
    pub(crate) method: &'a str,
    pub(crate) value: Option<f64>,
    pub(crate) rows: Vec<&'a PreemptRow>,
}

impl<'a> Cell<'a> {
    /// The runs of the mix.
    pub(crate) fn mixed(&self) -> impl Iterator<Item = &'a Mixed> {
        self.rows.iter().filter_map(|row| match &row.measured {
            Measured::Mixed(mixed) => Some(&**mixed),
            _ => None,
        })
    }

    /// The spread of a number over the repeats.
    pub(crate) fn spread(&self, number: impl Fn(&Mixed) -> f64) -> Option<Spread> {
        Spread::of(self.mixed().map(number))
    }

    /// The median of a number over the repeats.
    pub(crate) fn median(&self, number: impl Fn(&Mixed) -> f64) -> Option<f64> {
        Some(self.spread(number)?.median)
    }

    /// What interrupts cost, pair by pair, of all repeats.
    pub(crate) fn losses(&self) -> impl Iterator<Item = f64> {
        self.overhead().flat_map(Overhead::losses)
    }

    pub(crate) fn overhead(&self) -> impl Iterator<Item = &'a Overhead> {
        self.rows.iter().filter_map(|row| match &row.measured {
            Measured::Overhead(overhead) => Some(overhead),
            _ => None,
        })
    }

    pub(crate) fn operations(&self) -> impl Iterator<Item = &'a Operation> {
        self.rows.iter().filter_map(|row| match &row.measured {
            Measured::Operation(operation) => Some(operation),
            _ => None,
        })
    }

    /// ns of an operation, over all rounds.
    pub(crate) fn ns(&self) -> Option<Spread> {
        Spread::of(self.operations().flat_map(|operation| operation.ns.clone()))
    }

    pub(crate) fn deliveries(&self) -> impl Iterator<Item = &'a DeliveryRow> {
        self.rows.iter().filter_map(|row| match &row.measured {
            Measured::Delivery(delivery) => Some(delivery),
            _ => None,
        })
    }

    /// The median of a number of ns of a delivery, over the repeats.
    pub(crate) fn delivery_ns(&self, number: fn(&DeliveryRow) -> u64) -> Option<f64> {
        Some(Spread::of(self.deliveries().map(|row| number(row) as f64))?.median)
    }

    pub(crate) fn throughput(&self) -> impl Iterator<Item = &'a Throughput> {
        self.rows.iter().filter_map(|row| match &row.measured {
            Measured::Throughput(throughput) => Some(throughput),
            _ => None,
        })
    }

    /// Transactions a second of a mix, over all turns.
    pub(crate) fn per_s(&self, mix: &str) -> Option<Spread> {
        let of_mix = self.throughput().filter(|row| row.mix == mix);
        Spread::of(of_mix.flat_map(|row| row.per_s.clone()))
    }
}

/// A report's rows in the order of tables.
#[derive(Clone, Debug)]
pub(crate) struct Summary<'a> {
    groups: Vec<(PreemptExperiment, Vec<Cell<'a>>)>,
}

impl<'a> Summary<'a> {
    pub(crate) fn of(report: &'a Report<PreemptRow>) -> Self {
        let mut groups: Vec<(PreemptExperiment, Vec<Cell<'a>>)> = Vec::new();
        for row in &report.rows {
            let index = groups.iter().position(|(of, _)| *of == row.experiment);
            let index = index.unwrap_or_else(|| {
                groups.push((row.experiment, Vec::new()));
                groups.len() - 1
            });
            let cells = &mut groups[index].1;
            let same = |cell: &&mut Cell<'_>| cell.method == row.method && cell.value == row.value;
            match cells.iter_mut().find(same) {
                Some(cell) => cell.rows.push(row),
                None => cells.push(Cell {
                    method: &row.method,
                    value: row.value,
                    rows: vec![row],
                }),
            }
        }
        groups.sort_by_key(|(experiment, _)| *experiment);
        Summary { groups }
    }

    /// The cells of an experiment, in the order in which they were run.
    pub(crate) fn cells(&self, of: PreemptExperiment) -> &[Cell<'a>] {
        let group = self.groups.iter().find(|(experiment, _)| *experiment == of);
        group.map_or(&[], |(_, cells)| cells)
    }

    /// The cell of a method in an experiment that sweeps nothing.
    pub(crate) fn cell(&self, of: PreemptExperiment, method: &str) -> Option<&Cell<'a>> {
        self.cells(of).iter().find(|cell| cell.method == method)
    }

    /// The experiments that were run.
    pub(crate) fn experiments(&self) -> impl Iterator<Item = PreemptExperiment> {
        self.groups.iter().map(|(experiment, _)| *experiment)
    }

    /// The methods of an experiment, each once.
    pub(crate) fn methods(&self, of: PreemptExperiment) -> Vec<&'a str> {
        let mut methods: Vec<&str> = Vec::new();
        for cell in self.cells(of) {
            if !methods.contains(&cell.method) {
                methods.push(cell.method);
            }
        }
        methods
    }
}

/// A transaction of the mix: its name, and where its latencies are.
pub(crate) type Transaction = (&'static str, fn(&Mixed) -> Latency);

/// The urgent ones.
pub(crate) const URGENT: [Transaction; 2] = [
    ("New-Order", |mixed| mixed.new_order),
    ("Payment", |mixed| mixed.payment),
];
/// The urgent one of which the paper has figures.
pub(crate) const NEW_ORDER: [Transaction; 1] = [URGENT[0]];
/// The long one.
pub(crate) const LONG: Transaction = ("Q2", |mixed| mixed.q2);
