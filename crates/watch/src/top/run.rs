//! Samples taken every so often, until the user or the reader has seen enough.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEventKind};

use super::controls::Controls;
use super::history::History;
use super::model::{Document, Interval, View, Wanted};
use super::view::{self, Screen};
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

/// Takes samples, and remembers the one before.
pub struct Sampler<'a> {
    source: &'a mut dyn Source,
    /// Says what a thread is called.
    title: &'a dyn Fn(u32) -> Option<String>,
    last: Option<(Instant, Sample)>,
}

impl<'a> Sampler<'a> {
    /// Takes samples from `source`.
    pub fn new(source: &'a mut dyn Source, title: &'a dyn Fn(u32) -> Option<String>) -> Self {
        Self {
            source,
            title,
            last: None,
        }
    }

    /// What happened since the sample before; none at the first.
    ///
    /// # Errors
    /// If there is no sample. The next interval then begins with the next one.
    pub fn interval(&mut self) -> Result<Option<Interval>, SourceError> {
        let before = self.last.take();
        let now = self.source.sample()?;
        let at = Instant::now();
        self.last = Some((at, now.clone()));
        Ok(before.map(|(then, sample)| Interval::new(sample, now, at - then, self.title)))
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
    sampler.interval()?;
    loop {
        std::thread::sleep(how.every);
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
    let mut due = Instant::now() + every;
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
            continue;
        }
        due = Instant::now() + every;
        match sampler.interval() {
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
    use crate::top::model::tests::sample;

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
        let ended = print(&mut Sampler::new(&mut Busy(0), &|_| None), &how, &mut out);
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
        let mut sampler = Sampler::new(&mut source, &|_| None);
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
    }
}
