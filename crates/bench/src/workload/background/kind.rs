//! What runs in the background.

use crate::harness::words::words;

words! {
    /// The background's work, in a loop.
    pub Job ("background job") {
        /// TPC-H's Q17.
        #[default]
        Q17 = "q17",
        /// An update of a fourth of a table's rows, and VACUUM (FREEZE).
        Vacuum = "vacuum",
        /// CREATE INDEX and DROP INDEX.
        CreateIndex = "create-index",
        /// `pg_dump` of TPC-H's tables, in a new connection each time.
        PgDump = "pg_dump",
        /// A transaction that keeps its snapshot for ten seconds and does nothing.
        OpenTransaction = "open-transaction",
        /// A sequential scan by a session and seven parallel workers, of a table of its
        /// own that the server's buffers do not keep.
        Scan = "scan",
        /// Training a logistic regression in Python, inside the server.
        LogisticRegression = "logistic-regression",
    }
}

impl Job {
    /// What it is called in reports.
    pub(crate) const fn label(self) -> &'static str {
        match self {
            Job::Q17 => "Q17",
            Job::Vacuum => "VACUUM",
            Job::CreateIndex => "CREATE INDEX",
            Job::PgDump => "pg_dump",
            Job::OpenTransaction => "open transaction",
            Job::Scan => "scan",
            Job::LogisticRegression => "ML",
        }
    }

    /// The head of a column of completions per second, in six characters.
    pub(crate) const fn per_second(self) -> &'static str {
        match self {
            Job::Q17 => "Q17/s",
            Job::Vacuum => "vac/s",
            Job::CreateIndex => "idx/s",
            Job::PgDump => "dump/s",
            Job::OpenTransaction => "txn/s",
            Job::Scan => "scan/s",
            Job::LogisticRegression => "fits/s",
        }
    }

    /// Debian packages that it takes beside PostgreSQL `major`.
    pub fn packages(self, major: u32) -> Vec<String> {
        match self {
            Job::LogisticRegression => vec![
                format!("postgresql-plpython3-{major}"),
                "python3-sklearn".to_owned(),
            ],
            _ => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_the_same_on_the_command_line_and_in_files() {
        for job in Job::ALL {
            assert_eq!(job.name().parse::<Job>().unwrap(), *job);
            assert_eq!(
                serde_json::to_string(job).unwrap(),
                format!("\"{}\"", job.name())
            );
        }
        let error = "nightly".parse::<Job>().unwrap_err().to_string();
        assert!(
            error.contains("q17, vacuum, create-index, pg_dump, open-transaction, scan"),
            "{error}"
        );
    }
}
