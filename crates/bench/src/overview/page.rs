//! All experiments beside what the papers have, as text of 80 columns, Markdown,
//! a page, and JSON. Each has a line for each figure of a paper, the sentence of
//! the experiment's own report, and the way to that.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::harness::figure::Figure;
use crate::overview::{Outcome, Overview, Section};
use crate::render::page::{self, escape};

/// Widths of a figure's columns: what, where, the paper's, ours.
pub(crate) const COLUMNS: [usize; 4] = [46, 11, 10, 8];
/// Columns of a terminal.
const WIDTH: usize = 80;

impl Section {
    /// How it ended, in few words.
    fn ended(&self) -> String {
        let took = took(self.run.took_s);
        match &self.run.outcome {
            Outcome::Done => format!("done in {took}"),
            Outcome::Failed(why) => format!("FAILED after {took}: {why}"),
            Outcome::Interrupted => format!("interrupted after {took}"),
        }
    }

    fn figures(&self) -> Vec<Figure> {
        let report = self.report.as_ref();
        report.map(|report| report.figures()).unwrap_or_default()
    }

    /// What the reader should see; or why there is nothing to be seen.
    fn sentence(&self) -> String {
        match (&self.report, &self.run.outcome) {
            (Ok(report), Outcome::Done) => report.sentence(),
            (Ok(report), _) => format!("Of what was measured: {}", report.sentence()),
            (Err(error), Outcome::Done) => error.to_string(),
            (Err(_), _) => "It has no rows.".to_owned(),
        }
    }

    /// The command line that repeats it.
    fn command(&self) -> String {
        format!("giveway {}", self.run.command.join(" "))
    }

    fn page(&self) -> String {
        format!("{}.html", self.experiment.name)
    }
}

impl Overview {
    /// Text of at most 80 columns.
    pub(crate) fn table(&self) -> String {
        let mut text = self.heading().join("\n") + "\n";
        let [what, place, paper, ours] = COLUMNS;
        for section in &self.sections {
            let title = format!(
                "{}: {}",
                section.experiment.name, section.experiment.section
            );
            let _ = write!(text, "\n{}{}", wrap(&title, 0), wrap(&section.ended(), 2));
            for figure in section.figures() {
                let _ = writeln!(
                    text,
                    "  {:<what$} {:<place$} {:>paper$} {:>ours$}",
                    figure.what,
                    figure.place,
                    figure.paper,
                    figure.text()
                );
            }
            text += &wrap(&section.sentence(), 2);
        }
        text + "\nColumns: where the paper has it, the paper's number, the one measured.\n"
    }

    /// The same for where Markdown is shown; links are beside it.
    pub(crate) fn markdown(&self) -> String {
        let mut text = format!("# {}\n", self.heading().join(". "));
        for section in &self.sections {
            let name = section.experiment.name;
            let _ = write!(
                text,
                "\n## {name}\n\n{}, {}. `{}`; [page]({}), [rows]({name}.json)\n\n",
                section.experiment.section,
                cell(&section.ended()),
                section.command(),
                section.page()
            );
            let figures = section.figures();
            if !figures.is_empty() {
                text.push_str("| | where | paper | measured |\n| --- | --- | --- | --- |\n");
            }
            for figure in &figures {
                let (what, place, paper) = (cell(&figure.what), figure.place, figure.paper);
                let _ = writeln!(text, "| {what} | {place} | {paper} | {} |", figure.text());
            }
            let _ = write!(text, "\n{}\n", section.sentence());
        }
        text
    }

    /// The same as a page, with links to those of the experiments beside it.
    pub(crate) fn page(&self) -> String {
        let heading = self.heading();
        let see = "Each experiment of the papers, with the paper's number beside the one \
                   measured here. The papers measured on other machines: compare ratios and \
                   shapes.";
        let mut page = page::begin("all experiments", "All experiments", &heading, see);
        for section in &self.sections {
            let note = format!("{}, {}", section.experiment.section, section.ended());
            page::section(&mut page, section.experiment.name, &note);
            figures_on(&mut page, &section.figures());
            let _ = write!(
                page,
                "<p>{}</p>\n<p class=\"note\"><code>{}</code>{}</p>\n",
                escape(&section.sentence()),
                escape(&section.command()),
                links(section)
            );
        }
        page::end(page)
    }

    /// The same for programs.
    pub(crate) fn json(&self) -> String {
        let section = |section: &Section| {
            json!({
                "experiment": section.experiment.name,
                "section": section.experiment.section,
                "run": section.run,
                "environment": section.report.as_ref().ok().map(|report| report.environment()),
                "sentence": section.sentence(),
                "figures": section.figures(),
            })
        };
        let sections: Vec<Value> = self.sections.iter().map(section).collect();
        let text = serde_json::to_string_pretty(&json!({ "experiments": sections }));
        text.expect("an overview is plain data") + "\n"
    }

    fn heading(&self) -> Vec<String> {
        let count = |outcome: fn(&Outcome) -> bool| {
            let ended = self.sections.iter().map(|section| &section.run.outcome);
            ended.filter(|ended| outcome(ended)).count()
        };
        let done = count(|outcome| *outcome == Outcome::Done);
        let mut lines = vec![format!(
            "Experiments: {done} of {} that were run are done",
            self.sections.len()
        )];
        let mut origins: Vec<String> = Vec::new();
        for section in &self.sections {
            let origin = &section.run.origin;
            let commit: String = origin.commit.chars().take(12).collect();
            let text = format!("commit {commit} on {}", origin.machine);
            if !origins.contains(&text) {
                origins.push(text);
            }
        }
        // Of several commits, rows of different experiments are not of one program.
        lines.extend(origins);
        lines
    }
}

fn figures_on(page: &mut String, figures: &[Figure]) {
    if figures.is_empty() {
        return;
    }
    page.push_str(
        "<div class=\"card\"><table><thead><tr><th></th><th>where</th><th>paper</th>\
         <th>measured</th></tr></thead><tbody>",
    );
    for figure in figures {
        let _ = write!(
            page,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            escape(&figure.what),
            figure.place,
            figure.paper,
            figure.text()
        );
    }
    page.push_str("</tbody></table></div>\n");
}

/// The ways to what is beside the page; none where there are no rows.
fn links(section: &Section) -> String {
    if section.report.is_err() {
        return String::new();
    }
    let (name, page) = (section.experiment.name, section.page());
    format!(
        " <a href=\"{page}\">page</a> <a href=\"{name}.txt\">table</a> <a href=\"{name}.json\">rows</a>"
    )
}

/// A cell of a Markdown table holds no bars and no line ends.
fn cell(text: &str) -> String {
    text.replace('|', "/").replace('\n', " ")
}

/// Text in lines of at most 80 columns, each after so many spaces.
fn wrap(text: &str, indent: usize) -> String {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= WIDTH => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(format!("{:indent$}{word}", "")),
        }
    }
    lines.iter().map(|line| format!("{line}\n")).collect()
}

/// Seconds in words.
fn took(seconds: f64) -> String {
    match seconds {
        s if s < 100.0 => format!("{s:.0} s"),
        s if s < 6_000.0 => format!("{:.0} min", s / 60.0),
        s => format!("{:.1} h", s / 3_600.0),
    }
}

/// What is expected, in a file beside this one.
#[cfg(test)]
pub(crate) fn golden(name: &str) -> String {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/src/overview/samples");
    std::fs::read_to_string(std::path::Path::new(dir).join(name)).expect("it is in the tree")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::placement::report as placement;
    use crate::experiments::weights::report as weights;
    use crate::overview::{Origin, Run, Runs};

    /// A directory with one experiment that is done, one of which a part was
    /// measured, and one that left nothing.
    fn overview() -> (tempfile::TempDir, Overview) {
        let dir = tempfile::tempdir().unwrap();
        let mut runs = Runs::read(dir.path()).unwrap();
        let placement = runs.file("placement", "json");
        placement::samples::report().write(&placement).unwrap();
        let weights = runs.file("weights", "json");
        weights::samples::report().write(&weights).unwrap();
        let failed = |why: &str| Outcome::Failed(why.to_owned());
        for (experiment, outcome) in [
            ("rocksdb", failed("db_bench: no such file")),
            (
                "weights",
                failed("1 of 4 cells were not measured; the rest is reported above"),
            ),
            ("placement", Outcome::Done),
        ] {
            runs.keep(Run {
                experiment: experiment.to_owned(),
                command: vec!["bench".to_owned(), experiment.to_owned()],
                origin: Origin {
                    commit: "0123456789abcdef".to_owned(),
                    machine: "sample".to_owned(),
                },
                outcome,
                took_s: 754.0,
            })
            .unwrap();
        }
        (dir, Overview::of(&runs))
    }

    #[test]
    fn the_table_has_each_figure_beside_the_paper_s() {
        let text = overview().1.table();
        assert!(
            text.lines().all(|line| line.chars().count() <= WIDTH),
            "{text}"
        );
        assert_eq!(text, golden("overview.txt"));
    }

    #[test]
    fn markdown_has_tables_and_links() {
        let text = overview().1.markdown();
        assert!(
            text.contains("\n| EEVDF: most CPU of least | Figure 2 | piles up | 4.00 x |\n"),
            "{text}"
        );
        assert!(
            text.contains("[page](placement.html), [rows](placement.json)"),
            "{text}"
        );
        assert!(
            text.contains("FAILED after 13 min: db_bench: no such file"),
            "{text}"
        );
    }

    #[test]
    fn the_page_links_to_what_is_there() {
        let page = overview().1.page();
        assert!(page.starts_with("<!doctype html>") && page.ends_with("</html>\n"));
        assert!(page.contains("href=\"placement.html\"") && page.contains("href=\"weights.txt\""));
        assert!(!page.contains("href=\"rocksdb"), "it left nothing");
        for outside in ["<script", "src=", "url(", "@import", "href=\"http"] {
            assert!(!page.contains(outside), "{outside}");
        }
        let nothing = Overview {
            sections: Vec::new(),
        };
        assert!(nothing.page().ends_with("</html>\n"));
    }

    #[test]
    fn programs_read_numbers() {
        let (_dir, overview) = overview();
        let json: Value = serde_json::from_str(&overview.json()).unwrap();
        let [placement, weights, rocksdb] = json["experiments"].as_array().unwrap().as_slice()
        else {
            panic!("{json}");
        };
        assert_eq!(placement["figures"][0]["measured"], 4.0);
        assert_eq!(placement["run"]["outcome"], "done");
        assert_eq!(placement["environment"]["machine"], "sample");
        assert_eq!(weights["run"]["took_s"], 754.0);
        assert_eq!(
            rocksdb["run"]["outcome"]["failed"],
            "db_bench: no such file"
        );
        assert_eq!(rocksdb["figures"], json!([]));
    }

    #[test]
    fn long_words_have_lines_of_their_own() {
        let long = "x".repeat(90);
        assert_eq!(
            wrap(&format!("a {long} b"), 2),
            format!("  a\n  {long}\n  b\n")
        );
        assert_eq!(wrap("", 2), "");
    }
}
