//! Reports whose kind of rows is known only when the file has been looked at.

use std::path::PathBuf;

use super::{Record, Report};
use crate::harness::environment::Environment;
use crate::harness::error::Result;
use crate::harness::figure::Figure;
use crate::render::target::Target;

/// A report of some experiment.
pub(crate) trait AnyReport {
    /// Text of at most 80 columns.
    fn table(&self) -> String;

    /// A self-contained page with plots.
    fn page(&self) -> String;

    /// What the reader should see, in one sentence.
    fn sentence(&self) -> String;

    /// What the paper has, beside these rows.
    fn figures(&self) -> Vec<Figure>;

    /// What is wanted, as far as the rows say something about it.
    fn targets(&self) -> Vec<Target>;

    /// Where the rows come from.
    fn environment(&self) -> &Environment;
}

impl<R: Record> AnyReport for Report<R> {
    fn table(&self) -> String {
        Report::table(self)
    }

    fn page(&self) -> String {
        Report::page(self)
    }

    fn sentence(&self) -> String {
        Report::sentence(self)
    }

    fn figures(&self) -> Vec<Figure> {
        R::figures(self)
    }

    fn targets(&self) -> Vec<Target> {
        R::targets(self)
    }

    fn environment(&self) -> &Environment {
        &self.environment
    }
}

impl<R: Record + 'static> Report<R> {
    /// Reads results files as one report.
    ///
    /// # Errors
    /// A file that is no results file; rows that are not comparable ([`Report::merge`]).
    pub(crate) fn read_all(files: &[PathBuf]) -> Result<Box<dyn AnyReport>> {
        let mut reports = files.iter().map(|file| Report::<R>::read(file));
        let mut whole = reports.next().expect("there is a first file")?;
        for next in reports {
            whole.merge(next?)?;
        }
        Ok(Box::new(whole))
    }
}
