//! A probe batch that is being looked up: how far it is, and what it has found.

use datafusion::arrow::array::{ArrayRef, BooleanArray, RecordBatch, UInt32Array};
use datafusion::arrow::compute::filter_record_batch;
use datafusion::common::Result;

use super::recipe::Recipe;
use super::table::{Equal, JoinTable, Matchable, hashes};

/// Links of chains that are followed in one step: a chain is as long as its key is frequent.
const LINKS_MAX: usize = 1 << 14;

/// A probe batch, and how far it has been looked up.
pub(super) struct Lookup {
    pub(super) batch: RecordBatch,
    keys: Vec<ArrayRef>,
    equal: Equal,
    row: usize,
    /// The next link of the row's chain; `None` before the first.
    link: Option<u32>,
    /// Which rows have found a partner, if the join needs it.
    matched: Vec<bool>,
}

impl Lookup {
    /// A batch of which nothing has been looked up; the hashes of its keys go into
    /// `buffer`.
    pub(super) fn new(
        batch: RecordBatch,
        recipe: &Recipe,
        table: &JoinTable,
        buffer: &mut Vec<u64>,
    ) -> Result<Lookup> {
        let keys = (recipe.keys.iter())
            .map(|key| key.evaluate(&batch)?.into_array(batch.num_rows()))
            .collect::<Result<Vec<_>>>()?;
        hashes(&keys, batch.num_rows(), buffer)?;
        let matched = match recipe.wants_probe_rows() {
            Some(_) => vec![false; batch.num_rows()],
            None => Vec::new(),
        };
        Ok(Lookup {
            equal: table.equal(&keys, recipe.equality)?,
            batch,
            keys,
            row: 0,
            link: None,
            matched,
        })
    }

    /// Collects pairs of rows whose keys are equal, one of the table and one of the
    /// batch, or none yet: P1 of `probe`. If nothing but whether there are any matters,
    /// notes that instead.
    pub(super) fn pairs(
        &mut self,
        recipe: &Recipe,
        table: &JoinTable,
        hashes: &[u64],
    ) -> (Vec<u32>, Vec<u32>) {
        let (mut build, mut probe) = (Vec::new(), Vec::new());
        let matchable = Matchable::new(&self.keys, recipe.equality);
        let is_plain = recipe.filter.is_none() && !recipe.gives_pairs();
        let marks_build = Recipe::is_visited(recipe.kind);
        let mut links = 0;
        while self.row < self.batch.num_rows() {
            let row = self.row;
            let hash = hashes[row];
            // Whether no partner of the row has been seen, nor a part of its chain.
            let mut is_first = self.link.is_none();
            let mut link = match self.link.take() {
                Some(link) => link,
                None if matchable.is(row) => table.head(hash),
                None => 0,
            };
            while link != 0 {
                if build.len() == recipe.batch_rows || links == LINKS_MAX {
                    self.link = Some(link);
                    return (build, probe);
                }
                links += 1;
                let (other, is_same, next) = table.link(link, hash);
                link = next;
                if !is_same || !self.equal.is(other, row) {
                    continue;
                }
                if !is_plain {
                    build.push(other as u32);
                    probe.push(row as u32);
                } else if marks_build {
                    // Whoever has visited the first visits the others too: P3.
                    if is_first && table.is_visited(other) {
                        break;
                    }
                    is_first = false;
                    table.visit(other);
                } else {
                    self.matched[row] = true;
                    break;
                }
            }
            self.row += 1;
        }
        (build, probe)
    }

    /// Whether all rows have been looked up.
    pub(super) fn is_done(&self) -> bool {
        self.row == self.batch.num_rows()
    }

    /// These rows have found partners.
    pub(super) fn matches(&mut self, rows: &UInt32Array) {
        for &row in rows.values() {
            self.matched[row as usize] = true;
        }
    }

    /// The rows that have found a partner, or those that have not.
    pub(super) fn rows(&self, matched: bool) -> Result<RecordBatch> {
        let mask: BooleanArray = (self.matched.iter())
            .map(|&found| Some(found == matched))
            .collect();
        Ok(filter_record_batch(&self.batch, &mask)?)
    }
}
