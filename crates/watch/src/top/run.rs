//! Samples taken every so often, until the user or the reader has seen enough.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEventKind};

use super::controls::Controls;
use super::history::History;
use super::model::{Document, Interval, Wanted};
use super::process_rows::ProcessRows;
use super::row::View;
use super::view::{self, Screen};
use crate::processes::{Processes, ReadError, Reader};
use crate::sample::Sample;
use crate::source::{Source, SourceError};

/// Why it ended.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is nothing to show.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// There is nowhere to show it.
    #[error(transparent)]
    Output(#[from] io::Error),
}

/// Of the time at most one part in so many goes into reading `/proc`.
const SHARE: u32 = 10;

/// Takes samples, and remembers the one before.
///
/// Processes are read while they are wanted: they are far more than all else, and each
/// costs a few files.
pub struct Sampler<'a> {
    source: &'a mut dyn Source,
    /// Says what a thread is called.
    title: &'a dyn Fn(u32) -> Option<String>,
    reader: Reader,
    wants_processes: bool,
    /// What it took to read them.
    reading: Duration,
    last: Option<Taken>,
}

/// What was there at a time.
struct Taken {
    at: Instant,
    sample: Sample,
    processes: Option<Result<Processes, ReadError>>,
}

impl<'a> Sampler<'a> {
    /// Takes samples from `source`, and from `reader` if processes are wanted.
    pub fn new(
        source: &'a mut dyn Source,
        title: &'a dyn Fn(u32) -> Option<String>,
        reader: Reader,
    ) -> Self {
        Self {
            source,
            title,
            reader,
            wants_processes: false,
            reading: Duration::ZERO,
            last: None,
        }
    }

    /// Whether intervals are to have processes from now on. True if they are and were not:
    /// the first has none, so the sooner it begins, the better.
    pub fn want_processes(&mut self, wanted: bool) -> bool {
        let is_new = wanted && !self.wants_processes;
        self.wants_processes = wanted;
        is_new
    }

    /// How long to wait for the next sample: `every`, or longer where there are so many
    /// processes that reading them takes more than a tenth of that.
    fn pause(&self, every: Duration) -> Duration {
        every.max(self.reading * (SHARE - 1))
    }

    /// What happened since the sample before; none at the first.
    ///
    /// # Errors
    /// If there is no sample. The next interval then begins with the next one.
    pub fn interval(&mut self) -> Result<Option<Interval>, SourceError> {
        let before = self.last.take();
        let sample = self.source.sample()?;
        let at = Instant::now();
        let processes = self.wants_processes.then(|| self.reader.read());
        self.reading = at.elapsed();
        let interval = before.map(|before| {
            let rows = rows(before.processes.as_ref(), processes.as_ref(), &sample);
            let length = at - before.at;
            let interval = Interval::new(before.sample, sample.clone(), length, self.title);
            interval.with_processes(rows)
        });
        self.last = Some(Taken {
            at,
            sample,
            processes,
        });
        Ok(interval)
    }
}

/// What processes did between two readings; none if there was but one.
fn rows(
    before: Option<&Result<Processes, ReadError>>,
    now: Option<&Result<Processes, ReadError>>,
    ufs: &Sample,
) -> Option<ProcessRows> {
    match (before, now?) {
        (_, Err(error)) => Some(ProcessRows::failed(error)),
        (Some(Ok(before)), Ok(now)) => Some(ProcessRows::new(before, now, ufs)),
        _ => None,
    }
}

/// How something is printed.
#[derive(Clone, Debug)]
pub struct Printing {
    /// Between two samples.
    pub every: Duration,
    /// One interval, not one after the other.
    pub once: bool,
    /// A line of JSON for each interval; otherwise tables.
    pub json: bool,
    /// Which rows, in which order.
    pub wanted: Wanted,
}

/// Prints what happened, interval by interval.
///
/// # Errors
/// If there is no sample, or nowhere to print to.
pub fn print(sampler: &mut Sampler<'_>, how: &Printing, out: &mut dyn Write) -> Result<(), Error> {
    sampler.want_processes(true);
    sampler.interval()?;
    loop {
        std::thread::sleep(sampler.pause(how.every));
        let Some(interval) = sampler.interval()? else {
            continue;
        };
        if how.json {
            let document = Document::new(&interval, &how.wanted);
            let line = serde_json::to_string(&document).map_err(io::Error::from)?;
            writeln!(out, "{line}")?;
        } else {
            let tables = View::ALL.map(|view| view::table(&interval, view, &how.wanted));
            writeln!(out, "{}", tables.join("\n"))?;
        }
        out.flush()?;
        if how.once {
            return Ok(());
        }
    }
}

/// Shows what happens until the user quits. Trouble on the way is shown, too,
/// and tried to get over.
///
/// # Errors
/// If there is no first sample, or the terminal fails.
pub fn show(sampler: &mut Sampler<'_>, every: Duration, controls: Controls) -> Result<(), Error> {
    sampler.want_processes(controls.view == View::Processes);
    sampler.interval()?;
    // From here on a panic, too, gives the terminal back.
    let mut terminal = ratatui::try_init()?;
    let shown = converse(&mut terminal, sampler, every, controls);
    ratatui::try_restore()?;
    Ok(shown?)
}

fn converse(
    terminal: &mut DefaultTerminal,
    sampler: &mut Sampler<'_>,
    every: Duration,
    mut controls: Controls,
) -> io::Result<()> {
    let mut interval: Option<Interval> = None;
    let mut history = History::default();
    let mut trouble: Option<String> = None;
    let mut due = Instant::now() + sampler.pause(every);
    while !controls.has_quit {
        let screen = Screen {
            interval: interval.as_ref(),
            history: &history,
            trouble: trouble.as_deref(),
            controls: &controls,
        };
        let height = terminal
            .draw(|frame| view::draw(frame, screen))?
            .area
            .height;
        if event::poll(due.saturating_duration_since(Instant::now()))? {
            if let Event::Key(key) = event::read()?
                && key.kind == KeyEventKind::Press
            {
                controls.press(key, view::page(height));
            }
            if sampler.want_processes(controls.view == View::Processes) {
                due = Instant::now();
            }
            continue;
        }
        let taken = sampler.interval();
        due = Instant::now() + sampler.pause(every);
        match taken {
            Ok(next) if !controls.is_paused => {
                next.iter().for_each(|next| history.push(next));
                interval = next.or(interval);
                trouble = None;
            }
            Ok(_) => trouble = None,
            Err(error) => trouble = Some(format!("{error}; {}", error.remedy())),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::processes::tests::Planted;
    use crate::top::model::tests::sample;

    /// Of a machine whose processes cannot be read.
    fn sampler_of(source: &mut dyn Source) -> Sampler<'_> {
        Sampler::new(source, &|_| None, Reader::new("/no/such/proc", None))
    }

    /// Samples in which the first CPU works for a second more each time.
    struct Busy(u64);

    impl Source for Busy {
        fn sample(&mut self) -> Result<Sample, SourceError> {
            self.0 += 1;
            if self.0 > 3 {
                return Err(SourceError::Absent { path: "X".into() });
            }
            let mut sample = sample();
            for cpu in sample.cpus.values_mut() {
                cpu.work.background_ns += self.0 * 1_000_000_000;
            }
            Ok(sample)
        }
    }

    fn printed(once: bool, json: bool) -> (String, Result<(), Error>) {
        let mut out = Vec::new();
        let how = Printing {
            every: Duration::from_millis(1),
            once,
            json,
            wanted: Wanted::default(),
        };
        let ended = print(&mut sampler_of(&mut Busy(0)), &how, &mut out);
        (String::from_utf8(out).unwrap(), ended)
    }

    #[test]
    fn an_interval_does_not_reach_back_over_trouble() {
        struct Lame(u32);
        impl Source for Lame {
            fn sample(&mut self) -> Result<Sample, SourceError> {
                self.0 += 1;
                match self.0 {
                    2 => Err(SourceError::Absent { path: "X".into() }),
                    _ => Ok(sample()),
                }
            }
        }
        let mut source = Lame(0);
        let mut sampler = sampler_of(&mut source);
        assert!(sampler.interval().unwrap().is_none());
        assert!(sampler.interval().is_err());
        assert!(sampler.interval().unwrap().is_none());
        assert!(sampler.interval().unwrap().is_some());
    }

    #[test]
    fn one_interval_is_one_line_of_json() {
        let (text, ended) = printed(true, true);
        ended.unwrap();
        let document: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(document["cpus"][0]["background_ns"], 1_000_000_000);
        assert_eq!(text.lines().count(), 1);
        assert_eq!(document["processes"], serde_json::json!([]));
        let missing = document["processes_missing"].as_str().unwrap();
        assert!(missing.contains("/no/such/proc"), "{missing}");
    }

    #[test]
    fn a_process_is_a_row_of_json() {
        let planted = Planted::new();
        let mut source = Busy(0);
        let mut sampler = Sampler::new(&mut source, &|_| None, planted.reader());
        sampler.want_processes(true);
        sampler.interval().unwrap();
        planted.process(1, b"sys temd", "S 0 1 1 0 -1 4194560", 8, &[(1, 14, 2)]);
        let interval = sampler.interval().unwrap().unwrap();
        let document = Document::new(&interval, &Wanted::default());
        let document = serde_json::to_value(document).unwrap();
        let expected = serde_json::json!([{
            "name": "sys temd", "id": 1, "run_ns": 30_000_000, "preempted": 2,
            "cgroup": "/a/b", "threads": 1, "voluntary": 4,
        }]);
        assert_eq!(document["processes"], expected);
        assert!(document.get("processes_missing").is_none());
    }

    #[test]
    fn processes_are_read_while_they_are_wanted() {
        struct Same;
        impl Source for Same {
            fn sample(&mut self) -> Result<Sample, SourceError> {
                Ok(sample())
            }
        }
        let planted = Planted::new();
        let mut source = Same;
        let mut sampler = Sampler::new(&mut source, &|_| None, planted.reader());
        let mut has_processes = |wanted| {
            let is_new = sampler.want_processes(wanted);
            let interval = sampler.interval().unwrap();
            (is_new, interval.is_some_and(|it| it.processes().is_some()))
        };
        assert_eq!(has_processes(false), (false, false));
        assert_eq!(has_processes(false), (false, false));
        assert_eq!(has_processes(true), (true, false));
        assert_eq!(has_processes(true), (false, true));
        assert_eq!(has_processes(false), (false, false));
        assert_eq!(has_processes(true), (true, false));
    }

    #[test]
    fn reading_many_processes_takes_a_tenth_of_the_time_at_most() {
        let mut source = Busy(0);
        let mut sampler = sampler_of(&mut source);
        let second = Duration::from_secs(1);
        sampler.reading = Duration::from_millis(20);
        assert_eq!(sampler.pause(second), second);
        sampler.reading = Duration::from_millis(200);
        assert_eq!(sampler.pause(second), Duration::from_millis(1800));
    }

    #[test]
    fn intervals_follow_until_there_are_no_more_samples() {
        let (text, ended) = printed(false, true);
        assert_eq!(text.lines().count(), 2);
        assert!(matches!(ended, Err(Error::Source(_))));
    }

    #[test]
    fn a_table_for_each_view_is_printed() {
        let (text, _) = printed(true, false);
        for view in ["TIERS", "CGROUPS", "BACKENDS", "CPUS"] {
            assert!(text.contains(&format!("{view} ")), "{text}");
        }
        assert!(text.contains("    PID PROCESSES "), "{text}");
    }
}
