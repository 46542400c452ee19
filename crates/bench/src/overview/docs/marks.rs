//! Figures in pages that are written by hand: a comment, which no reader sees, names the
//! rows; the numbers behind it are generated.
//!
//! ```text
//! TPC-C keeps <!--[FILE ts_tps scheduler=ufs mix=MIN:MAX / mix=SOLO]-->0.97<!--[]--> of …
//! ```
//!
//! The number is the median of a field (`a.b` is a field of a field) over the rows of
//! `results/FILE` whose other fields have these values. After `/` stands what it is
//! divided by: a median of the same field, or of another that is named, over the rows with
//! the same values but for those that are given. It has as many decimals as what stood
//! there.
//!
//! A mark of several lines is for as many numbers, in their order: what its first line says
//! holds for each of the others. In a fence a number at the end of a line has a bar:
//!
//! ````text
//! <!--[FILE ts_tps
//! scheduler=eevdf mix=MIN:MAX / mix=SOLO
//! scheduler=ufs mix=MIN:MAX / mix=SOLO]-->
//!
//! ```
//!   Linux default (EEVDF)      ################                         0.40
//!   Giveway (UFS)              #######################################  0.97
//! ```
//!
//! <!--[]-->
//! ````
//!
//! Known weakness: values and names must not have spaces in them. A comment that begins a
//! line ends a Markdown paragraph.

use serde_json::Value;

use crate::harness::number::{Spread, is_of_few_samples};

const OPEN: &str = "<!--[";
const BEGUN: &str = "]-->";
const END: &str = "<!--[]-->";

/// Whether a page has a fraction such as 0.97 outside code and marks.
pub(super) fn has_unmarked(text: &str) -> bool {
    let (mut prose, mut rest) = (String::new(), text);
    while let Some((before, mark)) = rest.split_once(OPEN) {
        prose += before;
        rest = mark.split_once(END).map_or("", |(_, after)| after);
    }
    prose += rest;
    // Every second part is between backquotes, or between those of a fence.
    let fences = prose.split("```").step_by(2);
    let mut prose = fences.flat_map(|part| part.split('`').step_by(2));
    prose.any(|part| {
        part.match_indices("0.").any(|(at, _)| {
            let is_apart =
                !part[..at].ends_with(|c: char| c.is_alphanumeric() || "._-".contains(c));
            let after = &part[at + 2..];
            let digits = after.bytes().take_while(u8::is_ascii_digit).count();
            let is_version = after[digits..].starts_with('.')
                && after[digits + 1..].starts_with(|c: char| c.is_ascii_digit());
            is_apart && digits >= 2 && !is_version
        })
    })
}

/// Where a bar begins, how long 1 is, and where the number stands.
const BAR: usize = 29;
const ONE: f64 = 40.0;
const NUMBER: usize = 41;

/// A figure: which rows it takes, and what that comes to.
#[derive(Debug, PartialEq)]
pub(super) struct Figure {
    /// From 1.
    pub(super) line: usize,
    pub(super) file: String,
    /// How many repeats the smaller of its medians has.
    pub(super) repeats: usize,
    /// Whether it is a percentile of too few samples.
    pub(super) few_samples: bool,
}

/// The text with its figures as they should be, and these; or a line, and what is wrong
/// with its mark. `rows` are those of a file.
pub(super) fn regenerate<'r>(
    text: &str,
    rows: &dyn Fn(&str) -> Result<&'r [Value], String>,
) -> Result<(String, Vec<Figure>), (usize, String)> {
    let (mut new, mut figures, mut rest) = (String::new(), Vec::new(), text);
    while let Some((before, from)) = rest.split_once(OPEN) {
        let line = 1 + text[..text.len() - from.len()].matches('\n').count();
        let at = |why| (line, why);
        let parts = from.split_once(BEGUN).and_then(|(mark, from)| {
            let (body, after) = from.split_once(END)?;
            Some((mark, body, after))
        });
        let (mark, body, after) = parts.ok_or_else(|| at(format!("no {END} ends this mark")))?;
        let expressions: Vec<String> = match mark.split_once('\n') {
            Some((common, each)) => each.lines().map(|of| format!("{common} {of}")).collect(),
            None => vec![mark.to_owned()],
        };
        let mut values = Vec::new();
        for words in &expressions {
            let (value, figure) = evaluate(words, line, rows).map_err(at)?;
            values.push(value);
            figures.push(figure);
        }
        let body = fill(body, &values).map_err(at)?;
        new += &format!("{before}{OPEN}{mark}{BEGUN}{body}{END}");
        rest = after;
    }
    Ok((new + rest, figures))
}

/// What stands between two comments, with these numbers.
fn fill(body: &str, values: &[f64]) -> Result<String, String> {
    let is_fence = body.trim_start().starts_with("```");
    let mut numbers = 0;
    let mut new = String::new();
    for line in body.split_inclusive('\n') {
        let mut filled = String::new();
        for word in line.split_inclusive(char::is_whitespace) {
            let number = word.trim_matches(|c: char| !c.is_alphanumeric());
            if !number.starts_with(|c: char| c.is_ascii_digit()) || number.parse::<f64>().is_err() {
                filled += word;
                continue;
            }
            let value = values.get(numbers).copied().unwrap_or_default();
            numbers += 1;
            let text = format!("{value:.*}", decimals(number));
            if is_fence && line.trim_end().ends_with(number) {
                let label: String = line.chars().take(BAR).collect();
                let bar = "#".repeat((value * ONE).round() as usize);
                let after = &word[word.trim_end().len()..];
                filled = format!("{label:<BAR$}{bar:<NUMBER$}{text}{after}");
            } else {
                filled += &word.replacen(number, &text, 1);
            }
        }
        new += &filled;
    }
    match numbers == values.len() {
        true => Ok(new),
        false => Err(format!(
            "the mark is for {} numbers, and {numbers} stand here",
            values.len()
        )),
    }
}

/// Which rows, and what of them.
#[derive(Clone, Default)]
struct Median<'a> {
    field: &'a str,
    with: Vec<(&'a str, &'a str)>,
}

impl<'a> Median<'a> {
    /// What is said of rows replaces what was said before.
    fn hear(&mut self, word: &'a str) {
        match word.split_once('=') {
            Some((key, value)) => {
                self.with.retain(|(known, _)| *known != key);
                self.with.push((key, value));
            }
            None => self.field = word,
        }
    }

    fn of<'r>(&self, rows: &'r [Value]) -> Vec<(&'r Value, f64)> {
        let fits = |row: &&Value| {
            let with = |(key, value): &(&str, &str)| text(field(row, key)) == *value;
            self.with.iter().all(with)
        };
        let rows = rows.iter().filter(fits);
        rows.filter_map(|row| Some((row, field(row, self.field).as_f64()?)))
            .collect()
    }
}

fn evaluate<'r>(
    words: &str,
    line: usize,
    rows: &dyn Fn(&str) -> Result<&'r [Value], String>,
) -> Result<(f64, Figure), String> {
    let mut parts = words.split_whitespace();
    let file = parts.next().unwrap_or_default();
    let mut median = Median::default();
    let mut below: Option<Median<'_>> = None;
    for word in parts {
        match (&mut below, word) {
            (None, "/") => below = Some(median.clone()),
            (None, word) => median.hear(word),
            (Some(below), word) => below.hear(word),
        }
    }
    let rows = rows(file)?;
    let mut figure = Figure {
        line,
        file: file.to_owned(),
        repeats: usize::MAX,
        few_samples: false,
    };
    let mut number = |median: &Median<'_>| {
        let found = median.of(rows);
        figure.repeats = figure.repeats.min(found.len());
        figure.few_samples |= is_of_few(&found, median.field);
        let spread = Spread::of(found.into_iter().map(|(_, number)| number));
        spread.map(|spread| spread.median).ok_or_else(|| {
            format!(
                "no row of {file} has the field {} with {:?}",
                median.field, median.with
            )
        })
    };
    let mut value = number(&median)?;
    if let Some(below) = &below {
        value /= number(below)?;
    }
    Ok((value, figure))
}

/// Whether this is a percentile, and all repeats together have too few samples beyond it:
/// as many as the histogram or the count beside it says.
fn is_of_few(rows: &[(&Value, f64)], name: &str) -> bool {
    let (parent, leaf) = name.rsplit_once('.').unwrap_or(("", name));
    let digits = leaf.split('_').find_map(|part| {
        let digits = part.strip_prefix('p')?;
        digits.parse::<u32>().ok().map(|_| digits)
    });
    // p50, p99, p999: behind the point.
    let Some(share) = digits.and_then(|digits| format!("0.{digits}").parse::<f64>().ok()) else {
        return false;
    };
    let samples = rows.iter().map(|(row, _)| {
        let beside = |key: &str| match parent {
            "" => field(row, key),
            parent => field(field(row, parent), key),
        };
        let histogram = ["histogram", "latency_histogram"].map(|key| beside(key).as_array());
        match histogram.into_iter().flatten().next() {
            Some(pairs) => pairs.iter().filter_map(|pair| pair[1].as_f64()).sum(),
            None => ["count", "transactions"]
                .into_iter()
                .find_map(|key| beside(key).as_f64())
                .unwrap_or(0.0),
        }
    });
    is_of_few_samples(samples.sum(), share)
}

/// A field of a row, or of a field.
fn field<'r>(row: &'r Value, name: &str) -> &'r Value {
    name.split('.').fold(row, |value, key| match key.parse() {
        Ok(index) => value.get::<usize>(index).unwrap_or(&Value::Null),
        Err(_) => value.get(key).unwrap_or(&Value::Null),
    })
}

fn text(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}

/// How many decimals a number has.
fn decimals(number: &str) -> usize {
    number.split_once('.').map_or(0, |(_, digits)| digits.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn all() -> Vec<Value> {
        let row = |who: &str, mix: &str, tps: f64| {
            let histogram = [[1.0, 1500.0], [9.0, 20.0]];
            json!({"who": who, "mix": mix, "tps": tps, "p95_ms": 5.5, "p99_ms": 7.0,
                   "latency_histogram": histogram})
        };
        vec![
            row("ufs", "SOLO", 100.0),
            row("ufs", "MIN:MAX", 96.0),
            row("ufs", "MIN:MAX", 97.0),
            row("ufs", "MIN:MAX", 99.0),
        ]
    }

    type Regenerated = Result<(String, Vec<Figure>), (usize, String)>;

    fn regenerated(text: &str) -> Regenerated {
        let all = all();
        regenerate(text, &|file| match file {
            "a.json" => Ok(&all),
            other => Err(format!("there is no results/{other}")),
        })
    }

    fn number(mark: &str, stands: &str) -> String {
        let text = format!("x <!--[{mark}]-->{stands}<!--[]--> y");
        let (new, _) = regenerated(&text).unwrap();
        assert_eq!(regenerated(&new).unwrap().0, new);
        new.split_once(BEGUN)
            .unwrap()
            .1
            .split_once(END)
            .unwrap()
            .0
            .to_owned()
    }

    #[test]
    fn a_mark_says_a_median_or_the_ratio_of_two_with_the_decimals_that_stood_there() {
        assert_eq!(number("a.json tps who=ufs mix=MIN:MAX", "1.0"), "97.0");
        assert_eq!(
            number("a.json tps who=ufs mix=MIN:MAX / mix=SOLO", "0.98"),
            "0.97"
        );
        assert_eq!(number("a.json tps mix=SOLO / p95_ms", "1"), "18");
        assert_eq!(number("a.json mix=MIN:MAX tps / mix=SOLO", "1"), "1");
        assert_eq!(number("a.json mix=SOLO tps", "1"), "100");
        assert_eq!(number("a.json latency_histogram.1.0", "1.00"), "9.00");
        let why = |text: &str| regenerated(text).unwrap_err();
        assert_eq!(
            why("\n<!--[b.json tps]-->1<!--[]-->"),
            (2, "there is no results/b.json".to_owned())
        );
        assert!(
            why("<!--[a.json tps mix=50:50]-->1<!--[]-->")
                .1
                .contains("no row")
        );
        assert!(why("<!--[a.json tps]-->1").1.contains("ends this mark"));
        for text in ["none", "1 2", "p99"] {
            let why = why(&format!("<!--[a.json tps]-->{text}<!--[]-->"));
            assert!(why.1.contains("is for 1 numbers"), "{why:?}");
        }
    }

    #[test]
    fn a_figure_knows_its_repeats_and_whether_a_percentile_has_its_samples() {
        let figure = |mark: &str| {
            let text = format!("<!--[{mark}]-->1<!--[]-->");
            let (_, mut figures) = regenerated(&text).unwrap();
            let figure = figures.remove(0);
            (figure.repeats, figure.few_samples)
        };
        assert_eq!(figure("a.json tps mix=MIN:MAX"), (3, false));
        assert_eq!(figure("a.json tps mix=MIN:MAX / mix=SOLO"), (1, false));
        // 1520 in each row: 76 of them beyond p95, and 228 of three.
        assert_eq!(figure("a.json p95_ms mix=MIN:MAX"), (3, false));
        assert_eq!(figure("a.json p95_ms mix=SOLO"), (1, true));
        assert_eq!(figure("a.json p99_ms mix=MIN:MAX"), (3, true));
    }

    #[test]
    fn a_fraction_outside_code_and_marks_is_unmarked() {
        for text in [
            "It has 0.97 of it.",
            "(0.985)",
            "`a` 0.97",
            "<!--[a]-->0.1<!--[]--> 0.97",
        ] {
            assert!(has_unmarked(text), "{text}");
        }
        for text in [
            "`0.97`",
            "a\n```\n0.97\n```\nb",
            "Linux 6.12, 10.97, 0.5, version 0.12.1, parking_lot-0.12",
            "<!--[a]-->0.97<!--[]-->",
        ] {
            assert!(!has_unmarked(text), "{text}");
        }
    }

    #[test]
    fn a_mark_of_several_lines_is_for_as_many_numbers() {
        let mark = "<!--[a.json tps who=ufs\nmix=MIN:MAX\nmix=SOLO p95_ms]-->";
        let text = format!("{mark}it has 1 (a 95th percentile:\n2.0), or<!--[]-->");
        let new = regenerated(&text).unwrap().0;
        assert_eq!(
            new,
            format!("{mark}it has 97 (a 95th percentile:\n5.5), or<!--[]-->")
        );
    }

    #[test]
    fn the_bars_of_a_chart_are_as_long_as_their_numbers() {
        let mark = "<!--[a.json tps\nmix=MIN:MAX / mix=SOLO\nmix=SOLO / mix=SOLO]-->";
        let line = |label: &str, bar: usize, number: &str| {
            format!("{label:<29}{:<41}{number}", "#".repeat(bar))
        };
        let chart = |one: &str, other: &str| {
            format!("{mark}\n```\nTPC-C, of SOLO\n{one}\n{other}\n```\n<!--[]-->")
        };
        let stands = chart(&line("  MIN:MAX", 1, "0.11"), &line("  SOLO", 0, "0.90"));
        let should = chart(&line("  MIN:MAX", 39, "0.97"), &line("  SOLO", 40, "1.00"));
        assert_eq!(regenerated(&stands).unwrap().0, should);
    }
}
