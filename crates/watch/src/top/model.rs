//! The rows of a view: what each tier, cgroup, backend, CPU or process did between two
//! samples, in an order, as far as a filter lets through.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use super::process_rows::ProcessRows;
use super::row::{Column, Row, View};
use crate::names;
use crate::sample::{Sample, Work};

/// Two samples, and what passed between them.
#[derive(Clone, Debug)]
pub struct Interval {
    before: Sample,
    now: Sample,
    /// From one to the other.
    pub length: Duration,
    /// Titles of the threads in `now`, as far as they are known.
    titles: BTreeMap<u32, String>,
    /// Processes, if they were read.
    processes: Option<ProcessRows>,
}

impl Interval {
    /// From `before` to `now`, which is `length` later.
    pub fn new(
        before: Sample,
        now: Sample,
        length: Duration,
        title: impl Fn(u32) -> Option<String>,
    ) -> Self {
        let threads = now.threads.values();
        let titles = threads.filter_map(|thread| Some((thread.tid, title(thread.tid)?)));
        Self {
            titles: titles.collect(),
            before,
            now,
            length,
            processes: None,
        }
    }

    /// The same with what processes did meanwhile.
    #[must_use]
    pub fn with_processes(self, processes: Option<ProcessRows>) -> Self {
        Self { processes, ..self }
    }

    /// What processes did, if they were read.
    pub fn processes(&self) -> Option<&ProcessRows> {
        self.processes.as_ref()
    }

    /// The later sample.
    pub fn now(&self) -> &Sample {
        &self.now
    }

    /// Every row of a view.
    fn all(&self, view: View) -> Vec<Row> {
        let none = Work::default();
        match view {
            View::Tiers => {
                let rows = self.now.tiers.iter().map(|(name, tier)| {
                    let before = self.before.tiers.get(name).map(|old| old.work(name));
                    let done = tier.work(name).since(&before.unwrap_or_default());
                    Row::new(name.clone(), None, Some(name), &done)
                });
                rows.collect()
            }
            View::Cgroups => {
                let rows = self.now.cgroups.iter().map(|(&id, cgroup)| {
                    let old = self.before.cgroups.get(&id);
                    let done = cgroup.work.since(old.map_or(&none, |old| &old.work));
                    let waited = cgroup.lock_wait_ns.map(|now| {
                        let then = old.and_then(|old| old.lock_wait_ns).unwrap_or(0);
                        // Totals begin anew if the controller was disabled meanwhile.
                        now.checked_sub(then).unwrap_or(now)
                    });
                    let path = names::printable(cgroup.path.as_bytes());
                    let row = Row::new(path, Some(id), Some(&cgroup.tier), &done);
                    row.with_lock_wait(waited)
                });
                rows.collect()
            }
            View::Backends => {
                let rows = self.now.threads.iter().map(|(slot, thread)| {
                    // The same slot may be another thread's by now.
                    let same = self.before.threads.get(slot);
                    let same = same.filter(|old| old.tid == thread.tid);
                    let done = thread.work.since(same.map_or(&none, |old| &old.work));
                    let title = self.titles.get(&thread.tid).map_or("?", String::as_str);
                    let name = format!("{} {title}", thread.tid);
                    Row::new(name, Some(thread.tid.into()), Some(&thread.tier), &done)
                });
                rows.collect()
            }
            View::Cpus => {
                let rows = self.now.cpus.iter().map(|(&cpu, now)| {
                    let before = self.before.cpus.get(&cpu).map_or(&none, |old| &old.work);
                    let done = now.work.since(before);
                    Row::new(format!("cpu {cpu}"), Some(cpu.into()), None, &done)
                });
                rows.collect()
            }
            View::Processes => {
                let rows = self.processes.iter().flat_map(|processes| &processes.rows);
                rows.cloned().collect()
            }
        }
    }

    /// The rows of a view that `wanted` lets through, in its order.
    pub fn rows(&self, view: View, wanted: &Wanted) -> Vec<Row> {
        let by = wanted.column(view);
        let mut rows = self.all(view);
        rows.retain(|row| wanted.has(row) && (wanted.idle || !row.is_idle()));
        rows.sort_by(|a, b| {
            let order = a.compare(b, by);
            let order = if wanted.is_ascending {
                order
            } else {
                order.reverse()
            };
            order.then_with(|| a.by_name(b))
        });
        rows
    }
}

/// Which rows are wanted, in which order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The column that rows are ordered by; in a view without it the CPU time.
    pub by: Column,
    /// The smallest first; names: the last of the alphabet.
    pub is_ascending: bool,
    /// Only rows with this in their name or tier, in any case; processes also in their
    /// number or cgroup.
    pub filter: String,
    /// Rows of which nothing happened, too.
    pub idle: bool,
    /// Whether the kernel counts waits for its locks: a column of cgroups.
    pub has_locks: bool,
}

impl Default for Wanted {
    fn default() -> Self {
        Self {
            by: Column::Run,
            is_ascending: false,
            filter: String::new(),
            idle: false,
            has_locks: false,
        }
    }
}

impl Wanted {
    /// The columns of a view, from left to right.
    pub fn columns(&self, view: View) -> &'static [Column] {
        view.columns(self.has_locks)
    }

    fn has(&self, row: &Row) -> bool {
        row.mentions(&self.filter.to_lowercase())
    }

    /// The column that orders the rows of a view.
    pub fn column(&self, view: View) -> Column {
        match self.columns(view).contains(&self.by) {
            true => self.by,
            false => Column::Run,
        }
    }
}

/// What a program gets: every view, everything in it.
#[derive(Debug, Serialize)]
pub struct Document {
    /// Seconds between the samples.
    pub interval_s: f64,
    /// The views.
    pub tiers: Vec<Row>,
    /// See [`tiers`](Self::tiers).
    pub cgroups: Vec<Row>,
    /// See [`tiers`](Self::tiers).
    pub backends: Vec<Row>,
    /// See [`tiers`](Self::tiers).
    pub cpus: Vec<Row>,
    /// See [`tiers`](Self::tiers).
    pub processes: Vec<Row>,
    /// Why not all processes are there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processes_missing: Option<String>,
}

impl Document {
    /// Of one interval, as far as a filter lets through.
    pub fn new(interval: &Interval, wanted: &Wanted) -> Self {
        let rows = |view| interval.rows(view, wanted);
        Self {
            interval_s: interval.length.as_secs_f64(),
            tiers: rows(View::Tiers),
            cgroups: rows(View::Cgroups),
            backends: rows(View::Backends),
            cpus: rows(View::Cpus),
            processes: rows(View::Processes),
            processes_missing: interval.processes().and_then(ProcessRows::missing),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::sample::{CgroupSample, CpuSample, Log2Histogram, ThreadSample, TierSample};
    use crate::top::process_rows;
    use crate::top::row::OfUfs;

    /// Work of so many milliseconds in each tier, with one wake-up per entry.
    pub(crate) fn work(urgent_ms: u64, background_ms: u64, wakes: &[usize]) -> Work {
        let mut octaves = vec![0; 32];
        for &octave in wakes {
            octaves[octave] += 1;
        }
        Work {
            time_sensitive_ns: urgent_ms * 1_000_000,
            background_ns: background_ms * 1_000_000,
            wakes: Log2Histogram(octaves),
            ..Work::default()
        }
    }

    /// Two tiers, three cgroups, two threads, two CPUs.
    pub(crate) fn sample() -> Sample {
        let cgroup = |path: &str, tier: &str, work| CgroupSample {
            path: path.into(),
            tier: tier.into(),
            weight: 100,
            throttles: 3,
            throttled_ns: 200_000_000,
            lock_wait_ns: None,
            work,
        };
        let thread = |tid, tier: &str, work| ThreadSample {
            tid,
            tier: tier.into(),
            work,
        };
        let tier = |run_ms: u64, wakes: &[usize]| TierSample {
            run_ns: run_ms * 1_000_000,
            wake_to_run_ns: 0,
            rest: work(0, 0, wakes),
        };
        Sample {
            nr_cpus: 2,
            nr_cgroups: 3,
            tiers: BTreeMap::from([
                ("time_sensitive".into(), tier(600, &[12, 12, 16])),
                ("background".into(), tier(900, &[23])),
            ]),
            cpus: BTreeMap::from([
                (
                    0,
                    CpuSample {
                        work: work(200, 700, &[12]),
                    },
                ),
                (
                    10,
                    CpuSample {
                        work: work(400, 200, &[12]),
                    },
                ),
            ]),
            cgroups: BTreeMap::from([
                (1, cgroup("/", "time_sensitive", work(100, 0, &[10]))),
                (
                    70,
                    cgroup(
                        "/system.slice/postgresql",
                        "time_sensitive",
                        work(500, 50, &[12, 16]),
                    ),
                ),
                (
                    71,
                    cgroup("/background.slice", "background", work(0, 850, &[23])),
                ),
                (72, cgroup("/idle.slice", "time_sensitive", Work::default())),
            ]),
            threads: BTreeMap::from([
                (5, thread(4001, "time_sensitive", work(300, 0, &[12]))),
                (9, thread(4002, "background", work(0, 50, &[20]))),
            ]),
            ..Sample::default()
        }
    }

    pub(crate) fn interval() -> Interval {
        let mut now = sample();
        for cgroup in now.cgroups.values_mut() {
            cgroup.work.preempted = 7;
        }
        let title = |tid| (tid == 4001).then(|| "postgres: app shop SELECT".to_owned());
        let processes = process_rows::tests::rows(1.0, &now);
        Interval::new(Sample::default(), now, Duration::from_secs(1), title)
            .with_processes(Some(processes))
    }

    /// The same on a kernel that counts waits for its locks: not of the top.
    pub(crate) fn with_locks() -> Interval {
        let mut interval = interval();
        for (id, before, now) in [
            (70, 5_000_000, 17_500_000),
            (71, 0, 40_000_000_000),
            (72, 7, 7),
        ] {
            let cgroup = interval.now.cgroups.get_mut(&id).unwrap();
            let old = CgroupSample {
                lock_wait_ns: Some(before),
                ..CgroupSample::default()
            };
            interval.before.cgroups.insert(id, old);
            cgroup.lock_wait_ns = Some(now);
        }
        interval
    }

    /// The same with so much of the CPU time.
    pub(crate) fn scaled(part: f64) -> Interval {
        let mut interval = interval();
        interval.processes = Some(process_rows::tests::rows(part, &interval.now));
        let now = &mut interval.now;
        let scale = |ns: &mut u64| *ns = (*ns as f64 * part) as u64;
        now.tiers
            .values_mut()
            .for_each(|tier| scale(&mut tier.run_ns));
        let works = now.cpus.values_mut().map(|cpu| &mut cpu.work);
        let works = works.chain(now.cgroups.values_mut().map(|cgroup| &mut cgroup.work));
        for work in works.chain(now.threads.values_mut().map(|thread| &mut thread.work)) {
            scale(&mut work.time_sensitive_ns);
            scale(&mut work.background_ns);
        }
        interval
    }

    fn names(view: View, wanted: &Wanted) -> Vec<String> {
        let rows = interval().rows(view, wanted);
        rows.into_iter().map(|row| row.name).collect()
    }

    fn by(by: Column) -> Wanted {
        Wanted {
            by,
            ..Wanted::default()
        }
    }

    #[test]
    fn rows_come_in_the_wanted_order() {
        let of = |wanted: &Wanted| names(View::Cgroups, wanted);
        let by_run = ["/background.slice", "/system.slice/postgresql", "/"];
        assert_eq!(of(&by(Column::Run))[..3], by_run);
        assert_eq!(of(&by(Column::Background))[0], "/background.slice");
        assert_eq!(of(&by(Column::P99))[..2], by_run[..2]);
        assert_eq!(of(&by(Column::Name))[0], "/");
        let rising = Wanted {
            is_ascending: true,
            ..by(Column::Run)
        };
        assert_eq!(of(&rising)[0], "/idle.slice");
        assert_eq!(names(View::Cpus, &by(Column::Name)), ["cpu 0", "cpu 10"]);
    }

    #[test]
    fn a_filter_looks_at_names_and_tiers() {
        let of = |filter: &str| {
            let wanted = Wanted {
                filter: filter.into(),
                ..Wanted::default()
            };
            names(View::Backends, &wanted)
        };
        assert_eq!(of("SHOP"), ["4001 postgres: app shop SELECT"]);
        assert_eq!(of("backgr"), ["4002 ?"]);
        assert_eq!(of("").len(), 2);
        assert!(of("nobody").is_empty());
    }

    #[test]
    fn processes_are_found_by_number_command_cgroup_and_tier() {
        let of = |filter: &str| {
            let wanted = Wanted {
                filter: filter.into(),
                ..Wanted::default()
            };
            let rows = interval().rows(View::Processes, &wanted);
            let ids = rows.into_iter().map(|row| row.id.unwrap());
            ids.collect::<Vec<_>>()
        };
        assert_eq!(of(""), [1_234_567, 4001, 4002, 60, 90, 17, 1]);
        assert_eq!(of("400"), [4001, 4002]);
        assert_eq!(of("BACKUP"), [60]);
        assert_eq!(of("system.slice"), [4001, 4002]);
        assert_eq!(of("background"), [1_234_567, 4002, 60]);
    }

    #[test]
    fn processes_are_ordered_by_each_of_their_columns() {
        let first = |column| {
            let rows = interval().rows(View::Processes, &by(column));
            rows.into_iter().next().unwrap().id.unwrap()
        };
        let firsts = View::Processes
            .columns(false)
            .iter()
            .map(|&column| first(column));
        // PID, command, tier, cgroup, threads, CPU time, involuntary and voluntary switches.
        let expected = [
            1_234_567, 1_234_567, 90, 90, 1_234_567, 1_234_567, 1_234_567, 4001,
        ];
        assert_eq!(firsts.collect::<Vec<_>>(), expected);
        // One that processes do not have.
        assert_eq!(first(Column::P99), 1_234_567);
    }

    #[test]
    fn a_row_is_the_difference_of_two_samples() {
        let before = sample();
        let mut now = sample();
        let more = now.cgroups.get_mut(&70).unwrap();
        more.work = work(530, 60, &[12, 16, 16]);
        more.work.preempted = 4;
        more.work.boosted_runs = 3;
        more.work.floor_runs = 2;
        let interval = Interval::new(before, now, Duration::from_secs(1), |_| None);
        let rows = interval.rows(View::Cgroups, &Wanted::default());
        let [row] = rows.as_slice() else {
            panic!("others did nothing: {rows:?}");
        };
        assert_eq!((row.run_ns, row.preempted), (40_000_000, 4));
        let ufs = OfUfs {
            background_ns: 10_000_000,
            lock_wait_ns: None,
            wakes: 1,
            wake_p50_ns: Some(1 << 17),
            wake_p99_ns: Some(1 << 17),
            boosted_runs: 3,
            floor_runs: 2,
        };
        assert_eq!(row.ufs(), Some(&ufs));
    }

    #[test]
    fn waits_for_locks_are_the_difference_and_order_cgroups() {
        let rows = with_locks().rows(
            View::Cgroups,
            &Wanted {
                has_locks: true,
                ..by(Column::LockWait)
            },
        );
        let waited = |row: &Row| (row.name.clone(), row.ufs().unwrap().lock_wait_ns);
        let expected = [
            ("/background.slice", Some(40_000_000_000)),
            ("/system.slice/postgresql", Some(12_500_000)),
            ("/idle.slice", Some(0)),
            ("/", None),
        ];
        let expected = expected.map(|(name, ns)| (name.to_owned(), ns));
        assert_eq!(Vec::from_iter(rows.iter().map(waited)), expected);
        // A total that began anew counts whole, as that of a new cgroup does.
        let mut interval = with_locks();
        interval.before.cgroups.get_mut(&70).unwrap().lock_wait_ns = Some(99_000_000);
        interval.before.cgroups.remove(&71);
        let json = serde_json::to_value(Document::new(&interval, &Wanted::default())).unwrap();
        assert_eq!(json["cgroups"][0]["lock_wait_ns"], 40_000_000_000_u64);
        assert_eq!(json["cgroups"][1]["lock_wait_ns"], 17_500_000);
        // Without the controller there is no such field.
        let json = serde_json::to_value(Document::new(&self::interval(), &Wanted::default()));
        assert!(json.unwrap()["cgroups"][0].get("lock_wait_ns").is_none());
    }

    #[test]
    fn reused_slot_starts_from_zero() {
        let before = sample();
        let mut now = sample();
        let other = now.threads.get_mut(&5).unwrap();
        (other.tid, other.work) = (5000, work(400, 0, &[12, 12]));
        let interval = Interval::new(before, now, Duration::from_secs(1), |_| None);
        let rows = interval.rows(View::Backends, &Wanted::default());
        assert_eq!(rows.len(), 1);
        assert_eq!((rows[0].id, rows[0].run_ns), (Some(5000), 400_000_000));
    }

    #[test]
    fn what_did_nothing_is_shown_on_demand() {
        let mut now = sample();
        now.cgroups.retain(|&id, _| id == 72);
        let interval = Interval::new(Sample::default(), now, Duration::from_secs(1), |_| None);
        let shown = |idle| {
            let wanted = Wanted {
                idle,
                ..Wanted::default()
            };
            interval.rows(View::Cgroups, &wanted).len()
        };
        assert_eq!((shown(false), shown(true)), (0, 1));
    }

    #[test]
    fn a_document_has_every_view() {
        let document = Document::new(&interval(), &Wanted::default());
        let json = serde_json::to_value(&document).unwrap();
        assert_eq!(json["interval_s"], 1.0);
        assert_eq!(json["tiers"][0]["name"], "background");
        assert_eq!(json["tiers"][0]["run_ns"], 900_000_000);
        assert_eq!(json["backends"][0]["wake_p50_ns"], 8192);
        for (view, rows) in [("cgroups", 4), ("backends", 2), ("cpus", 2)] {
            assert_eq!(json[view].as_array().unwrap().len(), rows, "{view}");
        }
    }
}
