//! Rows as lines of 80 columns or more, and a screen made of them.
//!
//! ```text
//! NAME                      RUN %   BG %     P50     P99 PREEMPT/s BOOST/s FLOOR/s
//! /background.slice          85.0   85.0  8.4 ms   17 ms       801      12       3
//! ```
//!
//! On a kernel with CFL, which counts waits for its locks:
//!
//! ```text
//! NAME               RUN %   BG % LOCK %     P50     P99 PREEMPT/s BOOST/s FLOOR/s
//! /background.slice   85.0   85.0  410.2  8.4 ms   17 ms       801      12       3
//! ```
//!
//! ```text
//!     PID COMMAND         TIER CGROUP                 THR  RUN % PREEMPT/s VOLUNT/s
//!    4711 postgres        ts   …stem.slice/postgresql   1   85.0       801       12
//! ```
//!
//! What does not fit of a path is its beginning, of any other name its end. On a
//! wider screen names get the room, of processes the cgroup; from 120 columns on
//! [`history`] gets half of it.
//!
//! Screens of 80 and 200 columns are kept in `golden/`, and a test compares them. After a
//! change, `GIVEWAY_RENEW=1 cargo test -p giveway-watch golden` writes them anew.

use std::time::Duration;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};

use super::controls::{Controls, HELP};
use super::history::{self, History};
use super::model::{Interval, Wanted};
use super::process_rows::ProcessRows;
use super::row::{Column, OfProc, OfUfs, Row, View};

/// What a table without a screen is wide.
pub const WIDTH: usize = 80;

/// A column's title and width; 0 takes what is left.
fn heading(view: View, column: Column) -> (&'static str, usize) {
    match column {
        Column::Pid => ("PID", 7),
        Column::Name if view == View::Processes => ("COMMAND", 15),
        Column::Name => ("NAME", 0),
        Column::Tier => ("TIER", 4),
        Column::Cgroup => ("CGROUP", 0),
        Column::Threads => ("THR", 4),
        Column::Run => ("RUN %", 6),
        Column::Background => ("BG %", 6),
        Column::LockWait => ("LOCK %", 6),
        Column::P50 => ("P50", 7),
        Column::P99 => ("P99", 7),
        Column::Preempted => ("PREEMPT/s", 9),
        Column::Voluntary => ("VOLUNT/s", 8),
        Column::Boosted => ("BOOST/s", 7),
        Column::Floor => ("FLOOR/s", 7),
    }
}

/// The columns that the history has, of a screen's.
fn history_width(width: usize) -> usize {
    match width.saturating_sub(WIDTH) / 2 {
        0..20 => 0,
        half => half.min(history::LENGTH),
    }
}

/// What is left for the column that takes it.
fn rest_width(view: View, columns: &[Column], width: usize) -> usize {
    let others = columns.iter().map(|&column| heading(view, column).1);
    let blanks = columns.len() - 1;
    width.saturating_sub(others.sum::<usize>() + blanks).max(8)
}

/// What a row says in a column.
fn cell(row: &Row, column: Column, length: Duration) -> String {
    // Of one CPU, or of one thread's time.
    let percent = |ns: u64| match 100.0 * ns as f64 / length.as_nanos().max(1) as f64 {
        // As wide as the column at most.
        percent if percent >= 9999.95 => format!("{percent:.0}"),
        percent => format!("{percent:.1}"),
    };
    let per_second = |count: u64| match count as f64 / length.as_secs_f64().max(1e-9) {
        0.0 => "0".to_owned(),
        rate if rate < 10.0 => format!("{rate:.1}"),
        rate => format!("{rate:.0}"),
    };
    let unknown = || "-".to_owned();
    let ufs = |text: &dyn Fn(&OfUfs) -> String| row.ufs().map_or_else(unknown, text);
    let proc = |text: &dyn Fn(&OfProc) -> String| row.proc().map_or_else(unknown, text);
    let time = |ns: Option<u64>| ns.map_or_else(unknown, short);
    match column {
        Column::Pid => row.id.map_or_else(unknown, |id| id.to_string()),
        Column::Name => row.name.clone(),
        Column::Tier => match row.tier.as_deref() {
            Some("time_sensitive") => "ts".to_owned(),
            Some("background") => "bg".to_owned(),
            other => other.unwrap_or("-").to_owned(),
        },
        Column::Cgroup => proc(&|proc| proc.cgroup.clone().unwrap_or_else(unknown)),
        Column::Threads => proc(&|proc| proc.threads.to_string()),
        Column::Run => percent(row.run_ns),
        Column::Background => ufs(&|ufs| percent(ufs.background_ns)),
        Column::LockWait => ufs(&|ufs| ufs.lock_wait_ns.map_or_else(unknown, percent)),
        Column::P50 => ufs(&|ufs| time(ufs.wake_p50_ns)),
        Column::P99 => ufs(&|ufs| time(ufs.wake_p99_ns)),
        Column::Preempted => per_second(row.preempted),
        Column::Voluntary => proc(&|proc| per_second(proc.voluntary)),
        Column::Boosted => ufs(&|ufs| per_second(ufs.boosted_runs)),
        Column::Floor => ufs(&|ufs| per_second(ufs.floor_runs)),
    }
}

/// A duration in two or three digits and a unit.
fn short(ns: u64) -> String {
    let (value, unit) = match ns {
        0..1_000 => (ns as f64, "ns"),
        1_000..1_000_000 => (ns as f64 / 1e3, "µs"),
        1_000_000..1_000_000_000 => (ns as f64 / 1e6, "ms"),
        _ => (ns as f64 / 1e9, "s"),
    };
    match value < 10.0 && ns >= 1_000 {
        true => format!("{value:.1} {unit}"),
        false => format!("{value:.0} {unit}"),
    }
}

/// `name` in `width` columns at most.
fn fitted(name: &str, width: usize) -> String {
    if columns(name) <= width {
        return name.to_owned();
    }
    let mut kept: Vec<char> = name.chars().collect();
    let is_path = name.starts_with('/');
    while columns(&kept.iter().collect::<String>()) >= width.max(1) {
        match is_path {
            true => drop(kept.remove(0)),
            false => drop(kept.pop()),
        }
    }
    kept.insert(if is_path { 0 } else { kept.len() }, '…');
    kept.into_iter().collect()
}

/// The columns that a text takes in a terminal.
fn columns(text: &str) -> usize {
    Span::raw(text).width()
}

/// The cells of a line, each as wide as its column.
fn cells(
    view: View,
    wanted: &Wanted,
    width: usize,
    text: impl Fn(Column) -> String,
) -> impl Iterator<Item = (Column, String)> {
    let columns_of_view = wanted.columns(view);
    let rest = rest_width(view, columns_of_view, width);
    columns_of_view.iter().map(move |&column| {
        let width = match heading(view, column).1 {
            0 => rest,
            width => width,
        };
        let text = text(column);
        let blank = |text: &str| " ".repeat(width.saturating_sub(columns(text)));
        let cell = match column {
            Column::Name | Column::Tier | Column::Cgroup => {
                let text = fitted(&text, width);
                let blank = blank(&text);
                text + &blank
            }
            // No digit is cut off.
            _ => blank(&text) + &text,
        };
        let is_first = columns_of_view.first() == Some(&column);
        let gap = if is_first { "" } else { " " };
        (column, format!("{gap}{cell}"))
    })
}

/// A view as text: a heading, and a line for each row.
pub fn table(interval: &Interval, view: View, wanted: &Wanted) -> String {
    let line = |cells: Vec<String>| cells.concat().trim_end().to_owned() + "\n";
    let headings = cells(view, wanted, WIDTH, |column| match column {
        Column::Name => view.name().to_uppercase(),
        _ => heading(view, column).0.to_owned(),
    });
    let mut text = line(headings.map(|(_, cell)| cell).collect());
    for row in interval.rows(view, wanted) {
        let cells = cells(view, wanted, WIDTH, |column| {
            cell(&row, column, interval.length)
        });
        text += &line(cells.map(|(_, cell)| cell).collect());
    }
    if let (View::Processes, Some(missing)) = (view, missing(interval)) {
        text += &format!("({missing})\n");
    }
    text
}

/// Why processes are missing.
fn missing(interval: &Interval) -> Option<String> {
    interval.processes().and_then(ProcessRows::missing)
}

/// What is on the screen.
#[derive(Clone, Copy, Debug)]
pub struct Screen<'a> {
    /// What happened last; none before the second sample.
    pub interval: Option<&'a Interval>,
    /// What happened before.
    pub history: &'a History,
    /// Why there is nothing newer.
    pub trouble: Option<&'a str>,
    /// What the user wants to see.
    pub controls: &'a Controls,
}

/// How many rows a screen of this height has room for.
pub fn page(height: u16) -> usize {
    usize::from(height.saturating_sub(4))
}

/// Draws the screen.
pub fn draw(frame: &mut Frame<'_>, screen: Screen<'_>) {
    let area = frame.area();
    let [top, tabs, head, body, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Min(0),
        Constraint::Length(1),
    ])
    .areas(area);
    let width = usize::from(area.width);
    frame.render_widget(status(screen), top);
    frame.render_widget(views(screen.controls), tabs);
    frame.render_widget(headings(screen, width), head);
    for (row, line) in body.rows().zip(lines(screen, width, body.height)) {
        frame.render_widget(line, row);
    }
    frame.render_widget(footer(screen.controls), foot);
}

/// The machine, or why it is not seen.
fn status(screen: Screen<'_>) -> Line<'static> {
    if let Some(trouble) = screen.trouble {
        return Line::styled(trouble.to_owned(), Modifier::BOLD);
    }
    let Some(interval) = screen.interval else {
        return Line::raw("UFS: the first interval is not over yet");
    };
    let now = interval.now();
    let counted = match interval.processes() {
        Some(processes) if screen.controls.view == View::Processes => {
            format!("{} processes{}", processes.rows.len(), processes.note())
        }
        _ => format!("{} hint slots in use", now.threads.len()),
    };
    let mut line = format!(
        "UFS  {} CPUs  {} cgroups  {counted}  last {:.1} s",
        now.nr_cpus,
        now.nr_cgroups,
        interval.length.as_secs_f64(),
    );
    if screen.controls.is_paused {
        line += "  PAUSED";
    }
    Line::raw(line)
}

fn views(controls: &Controls) -> Line<'static> {
    let mut spans = Vec::new();
    for (number, view) in (1..).zip(View::ALL) {
        let style = match view == controls.view {
            true => Modifier::REVERSED,
            false => Modifier::empty(),
        };
        spans.push(Span::styled(format!(" {number} {} ", view.name()), style));
        spans.push(Span::raw(" "));
    }
    if !controls.wanted.filter.is_empty() {
        let filter = format!("only: {}", controls.wanted.filter);
        spans.push(Span::styled(filter, Modifier::BOLD));
    }
    Line::from(spans)
}

fn headings(screen: Screen<'_>, width: usize) -> Line<'static> {
    let Controls { wanted, view, .. } = screen.controls;
    let bars = history_width(width);
    let by = wanted.column(*view);
    let cells = cells(*view, wanted, numbers_width(width), |column| {
        heading(*view, column).0.to_owned()
    });
    let mut spans: Vec<Span<'static>> = cells
        .map(|(column, cell)| {
            let sorted = match (column == by, wanted.is_ascending) {
                (true, false) => Modifier::REVERSED,
                (true, true) => Modifier::REVERSED | Modifier::UNDERLINED,
                (false, _) => Modifier::empty(),
            };
            Span::styled(cell, sorted | Modifier::BOLD)
        })
        .collect();
    if let (1.., Some(interval)) = (bars, screen.interval) {
        let title = format!("RUN % TO {}", 100 * history::full(*view, interval));
        spans.push(Span::styled(format!(" {title:>bars$}"), Modifier::BOLD));
    }
    Line::from(spans)
}

/// What is left beside the history and the blank before it.
fn numbers_width(width: usize) -> usize {
    match history_width(width) {
        0 => width,
        bars => width - bars - 1,
    }
}

/// The rows from the first that is not scrolled past. The last page stays.
fn lines(screen: Screen<'_>, width: usize, height: u16) -> Vec<Line<'static>> {
    let controls = screen.controls;
    let Some(interval) = screen.interval else {
        return Vec::new();
    };
    let rows = interval.rows(controls.view, &controls.wanted);
    if rows.is_empty() {
        return vec![Line::raw(nothing(interval, controls))];
    }
    let height = usize::from(height);
    let skipped = controls.skipped.min(rows.len().saturating_sub(height));
    let line = |row: &Row| {
        let style = match row.tier.as_deref() {
            Some("background") => Style::new().add_modifier(Modifier::DIM),
            _ => Style::new(),
        };
        let width_of_cells = numbers_width(width);
        let cells = cells(controls.view, &controls.wanted, width_of_cells, |column| {
            cell(row, column, interval.length)
        });
        let mut line: String = cells.map(|(_, cell)| cell).collect();
        if let bars @ 1.. = history_width(width) {
            line += &format!(" {}", screen.history.bars(controls.view, row, bars));
        }
        Line::styled(line, style)
    };
    rows.iter().skip(skipped).take(height).map(line).collect()
}

/// Why a view has no rows.
fn nothing(interval: &Interval, controls: &Controls) -> String {
    let now = interval.now();
    let processes = interval.processes();
    let text = match controls.view {
        View::Processes if processes.is_none() => "the first interval is not over yet",
        View::Processes if processes.is_some_and(|processes| processes.rows.is_empty()) => {
            return missing(interval).unwrap_or_else(|| "there is no process".to_owned());
        }
        _ if !controls.wanted.filter.is_empty() => "nothing that did anything matches the filter",
        View::Cgroups if now.cgroups.is_empty() => "this UFS does not tell of cgroups: update it",
        View::Backends if now.threads.is_empty() => "no thread has a hint slot",
        _ => "nothing did anything; 'a' shows all",
    };
    text.to_owned()
}

fn footer(controls: &Controls) -> Line<'static> {
    match controls.is_filtering {
        true => Line::raw(format!(
            "only names and tiers with: {}_   Enter keep  Esc clear",
            controls.wanted.filter
        )),
        false => Line::styled(HELP, Modifier::DIM),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;
    use crate::processes::{Processes, Reader};
    use crate::top::model::tests::{interval, scaled, with_locks};

    fn screen(controls: &Controls, trouble: Option<&str>, width: u16) -> Terminal<TestBackend> {
        let mut terminal = Terminal::new(TestBackend::new(width, 8)).unwrap();
        let interval = interval();
        let screen = Screen {
            interval: Some(&interval),
            history: &History::default(),
            trouble,
            controls,
        };
        terminal.draw(|frame| draw(frame, screen)).unwrap();
        terminal
    }

    /// The screen's lines, without blanks at their ends.
    fn drawn(controls: &Controls, trouble: Option<&str>, width: u16) -> Vec<String> {
        text(&screen(controls, trouble, width), width)
    }

    fn text(terminal: &Terminal<TestBackend>, width: u16) -> Vec<String> {
        let cells = terminal.backend().buffer().content();
        cells
            .chunks(width.into())
            .map(|line| line.iter().map(|cell| cell.symbol()).collect::<String>())
            .map(|line| line.trim_end().to_owned())
            .collect()
    }

    fn controls(view: View) -> Controls {
        Controls::new(view, Wanted::default())
    }

    #[test]
    fn eighty_columns_show_every_number() {
        assert_eq!(
            drawn(&controls(View::Cgroups), None, 80),
            [
                "UFS  2 CPUs  3 cgroups  2 hint slots in use  last 1.0 s",
                " 1 tiers   2 cgroups   3 backends   4 cpus   5 processes",
                "NAME                      RUN %   BG %     P50     P99 PREEMPT/s BOOST/s FLOOR/s",
                "/background.slice          85.0   85.0   17 ms   17 ms       7.0       0       0",
                "/system.slice/postgresql   55.0    5.0  8.2 µs  131 µs       7.0       0       0",
                "/                          10.0    0.0  2.0 µs  2.0 µs       7.0       0       0",
                "/idle.slice                 0.0    0.0       -       -       7.0       0       0",
                HELP,
            ]
        );
    }

    /// A machine of which every view has rows with numbers of every size, after a minute;
    /// at last cgroups on a kernel that counts waits for its locks.
    fn golden(width: u16) -> String {
        let mut history = History::default();
        let now = with_locks();
        // A rising load, then the interval that is shown.
        for tenths in 0..=40 {
            history.push(&scaled(f64::from(tenths) / 40.0));
        }
        history.push(&now);
        let views = View::ALL.map(|view| (view, false)).into_iter();
        let screens = views
            .chain([(View::Cgroups, true)])
            .map(|(view, has_locks)| {
                let mut controls = controls(view);
                controls.wanted.has_locks = has_locks;
                let mut terminal = Terminal::new(TestBackend::new(width, 10)).unwrap();
                let screen = Screen {
                    interval: Some(&now),
                    history: &history,
                    trouble: None,
                    controls: &controls,
                };
                terminal.draw(|frame| draw(frame, screen)).unwrap();
                text(&terminal, width).join("\n") + "\n"
            });
        screens.collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn golden_screens_are_what_is_drawn() {
        for width in [80, 200] {
            let name = format!("src/top/golden/{width}.txt");
            let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
            let drawn = golden(width);
            if std::env::var_os("GIVEWAY_RENEW").is_some() {
                fs::write(&file, &drawn).unwrap();
            }
            let kept = fs::read_to_string(&file).unwrap();
            assert_eq!(kept, drawn, "at {width} columns:\n{drawn}");
            let longest = drawn.lines().map(|line| line.chars().count()).max();
            assert!(longest <= Some(width.into()));
        }
    }

    #[test]
    fn kernel_that_counts_waits_for_locks_has_a_column_of_them() {
        let wanted = Wanted {
            has_locks: true,
            ..Wanted::default()
        };
        let text = table(&with_locks(), View::Cgroups, &wanted);
        assert_eq!(
            text,
            "CGROUPS            RUN %   BG % LOCK %     P50     P99 PREEMPT/s BOOST/s FLOOR/s\n\
             /background.slice   85.0   85.0 4000.0   17 ms   17 ms       7.0       0       0\n\
             …slice/postgresql   55.0    5.0    1.2  8.2 µs  131 µs       7.0       0       0\n\
             /                   10.0    0.0      -  2.0 µs  2.0 µs       7.0       0       0\n\
             /idle.slice          0.0    0.0    0.0       -       -       7.0       0       0\n"
        );
        let without = table(&with_locks(), View::Cgroups, &Wanted::default());
        assert!(!without.contains("LOCK"), "{without}");
        let tiers = table(&with_locks(), View::Tiers, &wanted);
        assert!(!tiers.contains("LOCK"), "{tiers}");
        // A thousand threads that wait for all of the time.
        let row = with_locks().rows(View::Cgroups, &wanted).swap_remove(0);
        let many = row.with_lock_wait(Some(1_000_000_000_000));
        let second = Duration::from_secs(1);
        assert_eq!(cell(&many, Column::LockWait, second), "100000");
        assert_eq!(cell(&many, Column::LockWait, 10 * second), "10000");
        assert_eq!(cell(&many, Column::LockWait, 20 * second), "5000.0");
    }

    #[test]
    fn a_table_is_what_the_screen_shows() {
        let text = table(&interval(), View::Cpus, &Wanted::default());
        assert_eq!(
            text,
            "CPUS                      RUN %   BG %     P50     P99 PREEMPT/s BOOST/s FLOOR/s\n\
             cpu 0                      90.0   70.0  8.2 µs  8.2 µs         0       0       0\n\
             cpu 10                     60.0   20.0  8.2 µs  8.2 µs         0       0       0\n"
        );
        for view in View::ALL {
            let text = table(&interval(), view, &Wanted::default());
            assert!(
                text.lines().all(|line| line.chars().count() <= WIDTH),
                "{text}"
            );
        }
    }

    #[test]
    fn view_of_processes_says_why_it_is_empty_or_has_a_part() {
        let controls = controls(View::Processes);
        let drawn = |processes| {
            let interval = interval().with_processes(processes);
            let mut terminal = Terminal::new(TestBackend::new(80, 8)).unwrap();
            let screen = Screen {
                interval: Some(&interval),
                history: &History::default(),
                trouble: None,
                controls: &controls,
            };
            terminal.draw(|frame| draw(frame, screen)).unwrap();
            let table = table(&interval, View::Processes, &controls.wanted);
            (text(&terminal, 80), table)
        };
        assert_eq!(drawn(None).0[3], "the first interval is not over yet");
        let error = Reader::new("/no/such/proc", None).read().unwrap_err();
        let (lines, table) = drawn(Some(ProcessRows::failed(&error)));
        assert!(
            lines[3].starts_with("cannot read /no/such/proc"),
            "{lines:?}"
        );
        assert!(table.ends_with("mount -t proc proc /proc)\n"), "{table}");
        let hidden = Processes {
            hides_others: true,
            ..Processes::default()
        };
        let rows = ProcessRows::new(&hidden, &hidden, interval().now());
        let (lines, table) = drawn(Some(rows));
        assert!(
            lines[0].contains(" 0 processes, others are hidden "),
            "{lines:?}"
        );
        assert!(table.ends_with("(hidepid hides those of others: use sudo)\n"));
    }

    #[test]
    fn wide_letters_do_not_shift_columns() {
        assert_eq!(fitted("漢字漢字", 5), "漢字…");
        let wanted = Wanted::default();
        let cells = cells(View::Processes, &wanted, 80, |column| match column {
            Column::Name => "漢字".to_owned(),
            _ => "1".to_owned(),
        });
        let line: String = cells.map(|(_, cell)| cell).collect();
        assert_eq!(columns(&line), 80);
    }

    #[test]
    fn the_column_of_the_order_and_the_view_are_marked() {
        let mut controls = controls(View::Backends);
        controls.wanted.by = Column::P99;
        let terminal = screen(&controls, None, 80);
        let marked = |line: u16| {
            let buffer = terminal.backend().buffer();
            let cells = (0..80).map(|column| &buffer[(column, line)]);
            let marked = cells.filter(|cell| cell.modifier.contains(Modifier::REVERSED));
            marked.map(|cell| cell.symbol()).collect::<String>()
        };
        assert_eq!(marked(1).trim(), "3 backends");
        assert_eq!(marked(2).trim(), "P99");
    }

    #[test]
    fn last_frame_stays_on_screen() {
        let mut controls = controls(View::Cgroups);
        controls.skipped = 1000;
        let mut terminal = Terminal::new(TestBackend::new(80, 6)).unwrap();
        let interval = interval();
        let screen = Screen {
            interval: Some(&interval),
            history: &History::default(),
            trouble: None,
            controls: &controls,
        };
        terminal.draw(|frame| draw(frame, screen)).unwrap();
        let text = terminal.backend().to_string();
        assert!(text.contains("/idle.slice"), "{text}");
        assert!(!text.contains("/background.slice"), "{text}");
    }

    #[test]
    fn trouble_and_a_filter_are_seen() {
        let mut controls = controls(View::Backends);
        controls.wanted.filter = "shop".into();
        controls.is_filtering = true;
        let lines = drawn(&controls, Some("nobody serves statistics"), 80);
        assert_eq!(lines[0], "nobody serves statistics");
        assert!(lines[1].ends_with("only: shop"), "{}", lines[1]);
        assert!(
            lines[3].starts_with("4001 postgres: app shop… "),
            "{}",
            lines[3]
        );
        assert_eq!(lines[4], "");
        assert!(lines[7].contains("with: shop_"), "{}", lines[7]);
        controls.wanted.filter = "nobody".into();
        assert!(drawn(&controls, None, 80)[3].contains("matches the filter"));
    }

    #[test]
    fn a_wider_screen_gives_names_the_room() {
        let lines = drawn(&controls(View::Backends), None, 120);
        assert!(
            lines[3].starts_with("4001 postgres: app shop SELECT "),
            "{}",
            lines[3]
        );
    }

    #[test]
    fn long_names_are_truncated_at_their_least_specific_end() {
        assert_eq!(fitted("/system.slice/x", 8), "…slice/x");
        assert_eq!(fitted("postgres: app", 8), "postgre…");
        assert_eq!(fitted("/a", 8), "/a");
    }

    #[test]
    fn durations_have_two_or_three_digits() {
        let texts = [1, 2048, 131_072, 1 << 20, 1 << 27, 1 << 31].map(short);
        assert_eq!(
            texts,
            ["1 ns", "2.0 µs", "131 µs", "1.0 ms", "134 ms", "2.1 s"]
        );
    }
}
