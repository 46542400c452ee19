//! Text to search in: the same for the same seed, on every machine.
//!
//! A chunk is about a subject, with a little of another, in sentences that are made by
//! pattern. It means nothing, but its words are ordinary and those of a subject come
//! together, so embeddings of chunks lie in clusters that touch, as those of real texts
//! do, and a search in them is no matter of luck. Questions are made in the same way.

use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::Serialize;

/// Changes whenever the same seed gives other text.
pub(super) const VERSION: u32 = 1;
/// Chunks of the corpus: tens of thousands, as in the paper (54 967).
pub(super) const CHUNKS: usize = 30_000;
/// The longest that a chunk is, in characters (section 3.1).
const LONGEST: usize = 500;
/// Questions that are asked in turn.
const QUESTIONS: usize = 1_000;
/// How often a sentence of a chunk has a word of another subject.
const ASIDE: f64 = 0.15;

/// A line for each subject, with its words.
const SUBJECTS: &str = include_str!("ask/subjects.txt");
const VERBS: &[&str] = &[
    "needs", "replaces", "follows", "changes", "holds", "delays", "limits", "starts", "checks",
    "supports", "moves", "records", "protects", "removes", "improves", "joins",
];
const QUALITIES: &[&str] = &[
    "new", "small", "late", "common", "second", "heavy", "open", "simple", "empty", "early",
    "local", "large", "slow", "careful", "old", "final",
];
/// `T` is a word of the subject, `V` a verb, `Q` a quality.
const SENTENCES: &[&str] = &[
    "The Q T V the T when the T is Q.",
    "Every T V one T before the next T.",
    "After the Q T the T V a T and the T again.",
    "If a T V the Q T, the T is Q until the T V it.",
    "Nobody expects that a Q T V the T.",
    "Most of the time the T V the T, and a T is Q.",
    "Between the T and the T there is a Q T that V both.",
    "It is the T that V the T, not the Q T.",
];
const QUESTION_FORMS: &[&str] = &[
    "Why is the T Q after the T V the T?",
    "How does a Q T that V the T become Q?",
    "What V the T when the Q T is there?",
    "Which T V the T before the T is Q?",
];

/// Chunks and questions.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Corpus {
    /// None longer than [`LONGEST`], none with a line's end in it.
    pub(super) chunks: Vec<String>,
    pub(super) questions: Vec<String>,
}

/// What is posted to the API.
#[derive(Serialize)]
struct Payload<'a> {
    question: &'a str,
}

impl Corpus {
    /// So many chunks, from this seed.
    pub(super) fn of(seed: u64, chunks: usize) -> Corpus {
        let subjects: Vec<Vec<&str>> = SUBJECTS
            .lines()
            .map(|line| line.split_whitespace().collect())
            .collect();
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        Corpus {
            chunks: (0..chunks).map(|_| chunk(&subjects, &mut random)).collect(),
            questions: (0..QUESTIONS)
                .map(|_| {
                    let subject = one(&subjects, &mut random);
                    let form = one(QUESTION_FORMS, &mut random);
                    fill(form, |random| *one(subject, random), &mut random)
                })
                .collect(),
        }
    }

    /// A body of a request in each line.
    pub(super) fn requests(&self) -> String {
        let line = |question: &String| {
            let payload = Payload { question };
            serde_json::to_string(&payload).expect("text is JSON") + "\n"
        };
        self.questions.iter().map(line).collect()
    }
}

/// As many sentences as fit.
fn chunk(subjects: &[Vec<&str>], random: &mut ChaCha8Rng) -> String {
    let (subject, other) = (one(subjects, random), one(subjects, random));
    let mut text = String::new();
    loop {
        let form = one(SENTENCES, random);
        let word = |random: &mut ChaCha8Rng| match random.random_bool(ASIDE) {
            true => *one(other, random),
            false => *one(subject, random),
        };
        let sentence = fill(form, word, random);
        if text.len() + 1 + sentence.len() > LONGEST {
            return text;
        }
        if !text.is_empty() {
            text.push(' ');
        }
        text += &sentence;
    }
}

fn fill<'a>(
    form: &str,
    word: impl Fn(&mut ChaCha8Rng) -> &'a str,
    random: &mut ChaCha8Rng,
) -> String {
    // A capital that stands alone, or before a mark, is a place.
    let place = |part: &str, random: &mut ChaCha8Rng| {
        let bare = part.trim_end_matches([',', '.', '?']);
        let filled = match bare {
            "T" => word(random),
            "V" => *one(VERBS, random),
            "Q" => *one(QUALITIES, random),
            _ => bare,
        };
        format!("{filled}{}", &part[bare.len()..])
    };
    let parts: Vec<String> = form.split(' ').map(|part| place(part, random)).collect();
    parts.join(" ")
}

fn one<'a, T>(of: &'a [T], random: &mut ChaCha8Rng) -> &'a T {
    of.choose(random).expect("no list is empty")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_same_seed_gives_the_same_text_and_another_another() {
        assert_eq!(Corpus::of(7, 50), Corpus::of(7, 50));
        assert_ne!(Corpus::of(7, 50).chunks, Corpus::of(8, 50).chunks);
    }

    #[test]
    fn chunks_are_as_long_as_may_be_and_all_different() {
        let chunks = Corpus::of(1, 3000).chunks;
        assert!(
            chunks
                .iter()
                .all(|chunk| (350..=LONGEST).contains(&chunk.len()))
        );
        assert!(
            chunks
                .iter()
                .all(|chunk| chunk.is_ascii() && !chunk.contains('\n'))
        );
        assert_eq!(chunks.iter().collect::<BTreeSet<_>>().len(), 3000);
        let left = |part: &str| part.trim_end_matches([',', '.']).len() == 1 && part != "a";
        let unfilled = chunks[0].split(' ').find(|part| left(part));
        assert_eq!(unfilled, None, "{}", chunks[0]);
    }

    #[test]
    fn a_chunk_is_about_a_subject() {
        let lines: Vec<BTreeSet<&str>> = SUBJECTS
            .lines()
            .map(|line| line.split_whitespace().collect())
            .collect();
        assert!(lines.iter().all(|words| words.len() == 12), "12 words each");
        for chunk in Corpus::of(1, 100).chunks {
            let words = || chunk.split([' ', ',', '.']);
            let of = |subject: &BTreeSet<&str>| words().filter(|w| subject.contains(w)).count();
            let all = words().filter(|w| lines.iter().any(|line| line.contains(w)));
            let most = lines.iter().map(of).max().unwrap();
            assert!(most * 2 > all.count(), "{chunk}");
        }
    }

    #[test]
    fn requests_are_json_with_a_question_each() {
        let requests = Corpus::of(1, 0).requests();
        assert_eq!(requests.lines().count(), QUESTIONS);
        for line in requests.lines() {
            let payload: serde_json::Value = serde_json::from_str(line).unwrap();
            assert!(payload["question"].as_str().unwrap().ends_with('?'));
        }
    }
}
