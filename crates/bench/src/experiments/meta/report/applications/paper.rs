//! What the metascheduler paper has of its application: Figures 1 and 2.

use super::{Best, Summary};
use crate::harness::figure::Figure;

/// A number of the best.
type Number = fn(&Best<'_>) -> f64;

/// The paper's numbers beside the summary's.
pub(crate) fn beside_paper(summary: Option<&Summary<'_>>) -> Vec<Figure> {
    let single = summary.and_then(Summary::best_single);
    let turns = summary.and_then(Summary::best_policy);
    let of = |what, place, paper, best: &Option<Best<'_>>, number: Number| {
        Figure::ratio(what, place, paper, best.as_ref().map(number)).unit(" %")
    };
    let [per_s, p99]: [Number; 2] = [|best| best.throughput.median, |best| best.p99.median];
    vec![
        of(
            "best single: throughput beyond EEVDF's",
            "Figure 1",
            "+2.36 %",
            &single,
            per_s,
        ),
        of(
            "best single: p99 beyond EEVDF's",
            "Figure 1",
            "-4.17 %",
            &single,
            p99,
        ),
        of(
            "best turns: throughput beyond EEVDF's",
            "Figure 2",
            "+3.94 %",
            &turns,
            per_s,
        ),
        of(
            "best turns: p99 beyond EEVDF's",
            "Figure 2",
            "-5.38 %",
            &turns,
            p99,
        ),
    ]
}
