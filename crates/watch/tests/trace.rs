//! A recording of a real machine, made into a file.
//!
//! `data/trace_pipe.txt` is what Linux 6.18 gave about two processes on CPU 1:
//! `report` (nice 19) computed there and `shop app` (nice -10) was woken every 10 ms.
//! Switches among other processes are not in it; one name was changed. To the tests `report` is background and all else time-sensitive,
//! but for the processes called `sleep`, which were gone when they were looked for.

use std::cell::Cell;
use std::collections::{BTreeSet, VecDeque};
use std::path::Path;
use std::time::Duration;
use std::{fs, io};

use giveway_tier::Tier;
use giveway_watch::trace::chrome::Owner;
use giveway_watch::trace::record::{About, Feed, Slot, Summary, Tasks, record};
use serde_json::Value;

const REPORT: u32 = 27388;
const SHOP: u32 = 27389;

/// Gives a text in parts, each a read's worth.
struct Recorded {
    parts: VecDeque<String>,
    /// Comes out when the recording is stopped.
    last: String,
    has_stopped: bool,
}

impl Feed for Recorded {
    fn read(&mut self, _patience: Duration, text: &mut String) -> io::Result<()> {
        text.push_str(&self.parts.pop_front().unwrap_or_default());
        Ok(())
    }

    fn stop(&mut self) -> io::Result<()> {
        assert!(!std::mem::replace(&mut self.has_stopped, true));
        self.parts.push_back(std::mem::take(&mut self.last));
        Ok(())
    }
}

/// Knows all but those that slept. `report` is boosted between the third look and
/// the fourth, and may ask for another tier from the fifth on; or go to another cgroup
/// after it was looked up, and `shop app` end.
#[derive(Default)]
struct Known {
    looks: u64,
    raised: bool,
    moved: bool,
    /// `shop app` has a slot from this look on; 0: never.
    late: u64,
    looked_up: [u32; 2],
}

impl Tasks for Known {
    fn about(&mut self, tid: u32) -> Option<About> {
        if [REPORT, SHOP].contains(&tid) {
            self.looked_up[(tid - REPORT) as usize] += 1;
        }
        let [report, shop] = self.looked_up.map(|times| self.moved && times > 1);
        let (name, tier) = match tid {
            REPORT if report => ("report", Tier::TimeSensitive),
            REPORT => ("report", Tier::Background),
            SHOP if shop => return None,
            SHOP => ("shop app", Tier::TimeSensitive),
            27391..27395 => return None,
            _ => ("other", Tier::TimeSensitive),
        };
        let owner = Owner {
            pid: tid,
            process: name.into(),
            title: name.into(),
            cgroup: "/".into(),
        };
        Some(About { owner, tier })
    }

    fn look(&mut self) -> (u64, Vec<Slot>) {
        self.looks += 1;
        let was_boosted = self.looks > 3;
        let slot = Slot {
            tid: REPORT,
            tier: (self.raised && self.looks > 4).then_some(Tier::TimeSensitive),
            boosts: 5 + u64::from(was_boosted),
            boosted_ns: 9_000_000 + u64::from(was_boosted) * 2_000_000,
            lock: 0xabc,
        };
        let of_shop = Slot {
            tid: SHOP,
            tier: None,
            boosts: 3,
            boosted_ns: 1_000,
            lock: 1,
        };
        let has_late = (1..=self.looks).contains(&self.late);
        let slots = [slot].into_iter().chain(has_late.then_some(of_shop));
        (self.looks * 10_000_000, slots.collect())
    }
}

fn recorded(raised: bool) -> (Summary, Vec<Value>) {
    let known = Known {
        raised,
        ..Known::default()
    };
    recorded_of(known, include_str!("data/trace_pipe.txt"))
}

fn recorded_of(mut tasks: Known, text: &str) -> (Summary, Vec<Value>) {
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let mut parts: VecDeque<String> = lines.chunks(10).map(<[&str]>::concat).collect();
    let last = parts.pop_back().unwrap();
    let mut feed = Recorded {
        parts,
        last,
        has_stopped: false,
    };
    // Asked after each part; the last part is left in the kernel's buffers.
    let asked = Cell::new(0);
    let is_over = || {
        asked.set(asked.get() + 1);
        asked.get() == lines.len().div_ceil(10) - 1
    };
    let mut file = Vec::new();
    let summary = record(&mut feed, &mut tasks, &is_over, &mut file).unwrap();
    assert!(feed.has_stopped);
    let file: Value = serde_json::from_slice(&file).unwrap();
    (summary, file["traceEvents"].as_array().unwrap().clone())
}

/// Slices of a name on a thread's own track, in microseconds since 2742 s.
fn slices(entries: &[Value], tid: u32, name: &str) -> Vec<(i64, i64)> {
    let own = entries
        .iter()
        .filter(|entry| entry["ph"] == "X" && entry["tid"] == tid && entry["name"] == name);
    let since = |entry: &Value| (entry["ts"].as_f64().unwrap() - 2_742e6).round() as i64;
    own.map(|entry| {
        (
            since(entry),
            since(entry) + entry["dur"].as_f64().unwrap().round() as i64,
        )
    })
    .collect()
}

#[test]
fn runs_and_waits_are_where_the_kernel_saw_them() {
    let (_, entries) = recorded(false);
    let runs = slices(&entries, REPORT, "runs");
    assert_eq!(runs[..2], [(468_046, 473_142), (476_157, 476_400)]);
    assert_eq!(runs.last(), Some(&(504_075, 508_424)));
    let preempted = slices(&entries, REPORT, "waits (preempted)");
    assert_eq!(preempted[..2], [(468_039, 468_046), (473_142, 476_157)]);
    assert_eq!(
        slices(&entries, SHOP, "waits (woken)"),
        [(473_311, 473_324), (484_383, 484_391), (495_505, 495_512)]
    );
    assert_eq!(slices(&entries, SHOP, "runs")[0], (473_324, 475_373));
}

#[test]
fn slices_of_a_cpu_follow_one_another() {
    let (_, entries) = recorded(false);
    let on_cpu = |name: &str| {
        let all = entries
            .iter()
            .filter(|entry| entry["ph"] == "X" && entry["tid"] == 1);
        all.filter(|entry| entry["name"] == name).count()
    };
    let background = slices(&entries, 1, "background");
    assert_eq!(background.len(), slices(&entries, REPORT, "runs").len());
    assert_eq!(on_cpu("report 27388"), background.len());
    let mut all: Vec<(i64, i64)> = ["background", "time_sensitive", "tier unknown"]
        .into_iter()
        .flat_map(|tier| slices(&entries, 1, tier))
        .collect();
    all.sort_unstable();
    assert!(all.len() > 20, "{all:?}");
    assert!(all.windows(2).all(|pair| pair[0].1 <= pair[1].0), "{all:?}");
}

#[test]
fn preemptions_name_the_preempted_thread() {
    let (summary, entries) = recorded(false);
    let instants = |name: &str| {
        let all = entries.iter().filter(|entry| entry["ph"] == "i");
        all.filter(|entry| entry["name"] == name).count()
    };
    // As counted in the recording, by hand.
    assert_eq!((summary.preemptions, summary.gave_way), (15, 6));
    assert_eq!(instants("background gives way"), 6);
    assert_eq!(instants("preempted"), 9);
    assert_eq!(instants("events lost"), 1);
    assert_eq!((summary.lost, summary.unreadable), (72, 0));
    assert_eq!(summary.events, 40);
}

#[test]
fn a_boost_lies_between_two_looks() {
    let (summary, entries) = recorded(false);
    assert_eq!(summary.boosts, 1);
    let boosted: Vec<&Value> = entries
        .iter()
        .filter(|entry| entry["name"] == "boosted")
        .collect();
    let [boosted] = boosted.as_slice() else {
        panic!("{boosted:?}");
    };
    assert_eq!(
        (&boosted["ts"], &boosted["dur"]),
        (&30_000.0.into(), &10_000.0.into())
    );
    assert_eq!(boosted["args"]["boosted_ns"], 2_000_000);
    assert_eq!(boosted["args"]["lock"], "0xabc");
}

#[test]
fn boosts_of_a_new_slot_count_unless_they_were_there_when_the_record_began() {
    for (late, boosts) in [(1, 1), (2, 4)] {
        let known = Known {
            late,
            ..Known::default()
        };
        let (summary, _) = recorded_of(known, include_str!("data/trace_pipe.txt"));
        assert_eq!(summary.boosts, boosts, "from look {late} on");
    }
}

/// As where the recorder does not keep up.
#[test]
fn slots_are_looked_at_within_a_long_read() {
    let text = include_str!("data/trace_pipe.txt");
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let mut feed = Recorded {
        parts: VecDeque::from([text.repeat(20)]),
        last: String::new(),
        has_stopped: false,
    };
    let mut tasks = Known::default();
    record(&mut feed, &mut tasks, &|| true, Vec::new()).unwrap();
    // Before all, before the read, in it, at the end.
    assert_eq!(tasks.looks, 3 + (20 * lines.len() as u64) / 64);
}

#[test]
fn a_slot_s_tier_counts_from_when_it_is_seen() {
    let (_, entries) = recorded(true);
    let (background, all) = (
        slices(&entries, 1, "background"),
        slices(&entries, REPORT, "runs"),
    );
    assert!(!background.is_empty() && background.len() < all.len());
    assert_eq!(background, all[..background.len()]);
}

#[test]
fn change_of_the_cgroup_changes_the_tier_and_what_has_ended_keeps_it() {
    let (all, entries) = recorded(false);
    let all_runs = [REPORT, SHOP].map(|tid| slices(&entries, tid, "runs"));
    // Both change it in the middle.
    let text = include_str!("data/trace_pipe.txt");
    let at = text.match_indices('\n').nth(20).unwrap().0 + 1;
    let moved = |pid| {
        format!(
            "sh-1 [001] d..2. 2742.480000: cgroup_attach_task: dst_root=0 dst_id=9 \
             dst_level=1 dst_path=/x pid={pid} comm=x\n"
        )
    };
    let (before, after) = text.split_at(at);
    let text = format!("{before}{}{}{after}", moved(REPORT), moved(SHOP));
    let known = Known {
        moved: true,
        ..Known::default()
    };
    let (summary, entries) = recorded_of(known, &text);
    assert_eq!(summary.events, all.events);
    let background = slices(&entries, 1, "background");
    assert_eq!(background, all_runs[0][..background.len()]);
    assert!(!background.is_empty() && background.len() < all_runs[0].len());
    assert_eq!(slices(&entries, SHOP, "runs"), all_runs[1]);
}

/// The queries for Perfetto's trace processor, by name.
fn queries() -> Vec<(String, String)> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dist/perfetto");
    let files = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
    let query = |file: fs::DirEntry| {
        let name = file.file_name().into_string().unwrap();
        (name, fs::read_to_string(file.path()).unwrap())
    };
    files.map(query).collect()
}

/// They ask for slices by name and category, and for arguments by name, as the trace
/// processor has them. Whether it answers rightly is a test of `make test-long`.
#[test]
fn queries_ask_for_what_is_in_a_trace() {
    let (_, entries) = recorded(false);
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let mut there = BTreeSet::from(["all".to_owned()]);
    for entry in &entries {
        there.extend(
            ["name", "cat"]
                .iter()
                .filter_map(|field| text(&entry[field])),
        );
        let args = entry["args"].as_object().into_iter().flatten();
        there.extend(args.map(|(name, _)| format!("args.{name}")));
    }
    let queries = queries();
    assert!(queries.len() >= 7);
    for (name, query) in queries {
        let lines = query.lines().filter(|line| !line.starts_with("--"));
        let query: Vec<&str> = lines
            .flat_map(|line| line.split('\'').skip(1).step_by(2))
            .collect();
        assert!(query.len() >= 2, "{name}");
        for asked in query {
            assert!(
                there.contains(asked),
                "{name} asks for '{asked}': {there:?}"
            );
        }
    }
}

#[test]
fn page_names_every_query() {
    let page = include_str!("../../../docs/operate/scheduler.md");
    for (name, _) in queries() {
        assert!(page.contains(&format!("| `{name}` |")), "{name}");
    }
}
