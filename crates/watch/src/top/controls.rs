//! What keys do: which view, which order, which filter.
//!
//! ```text
//!            '/'                 keys: letters, Backspace
//!   LOOKING ───────► FILTERING ◄──┐
//!      ▲                │ └───────┘
//!      └────────────────┘  Enter keeps the filter, Esc clears it
//! ```

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::model::Wanted;
use super::row::View;

/// The keys, for the help line.
pub const HELP: &str = "Tab view  </> column  i invert  / filter  a all  p pause  q quit";

/// What the user has asked for.
#[derive(Clone, Debug)]
pub struct Controls {
    /// What the rows are about.
    pub view: View,
    /// Which, in which order.
    pub wanted: Wanted,
    /// The filter is being written.
    pub is_filtering: bool,
    /// New samples are not shown.
    pub is_paused: bool,
    /// Rows that are scrolled past.
    pub skipped: usize,
    /// It is over.
    pub has_quit: bool,
}

impl Controls {
    /// A beginning with `view`.
    pub fn new(view: View, wanted: Wanted) -> Self {
        Self {
            view,
            wanted,
            is_filtering: false,
            is_paused: false,
            skipped: 0,
            has_quit: false,
        }
    }

    /// Does what `key` asks for. `page` is how many rows the screen has.
    pub fn press(&mut self, key: KeyEvent, page: usize) {
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            self.has_quit |= key.code == KeyCode::Char('c');
            return;
        }
        match self.is_filtering {
            true => self.write(key.code),
            false => self.look(key.code, page),
        }
    }

    fn write(&mut self, key: KeyCode) {
        self.skipped = 0;
        match key {
            KeyCode::Char(c) => self.wanted.filter.push(c),
            KeyCode::Backspace => {
                self.wanted.filter.pop();
            }
            KeyCode::Enter => self.is_filtering = false,
            KeyCode::Esc => {
                self.is_filtering = false;
                self.wanted.filter.clear();
            }
            _ => {}
        }
    }

    fn look(&mut self, key: KeyCode, page: usize) {
        match key {
            KeyCode::Char('q') => self.has_quit = true,
            KeyCode::Esc => self.wanted.filter.clear(),
            KeyCode::Tab => self.show(next(&View::ALL, self.view, 1)),
            KeyCode::BackTab => self.show(next(&View::ALL, self.view, -1)),
            KeyCode::Char(c @ '1'..='9') => {
                let view = View::ALL.get(c as usize - '1' as usize);
                view.into_iter().for_each(|&view| self.show(view));
            }
            KeyCode::Char('>' | '.') | KeyCode::Right => self.order_by(1),
            KeyCode::Char('<' | ',') | KeyCode::Left => self.order_by(-1),
            KeyCode::Char('i') => self.wanted.is_ascending ^= true,
            KeyCode::Char('a') => self.wanted.idle ^= true,
            KeyCode::Char('p') => self.is_paused ^= true,
            KeyCode::Char('/') => self.is_filtering = true,
            KeyCode::Down => self.skipped += 1,
            KeyCode::Up => self.skipped = self.skipped.saturating_sub(1),
            KeyCode::PageDown => self.skipped += page,
            KeyCode::PageUp => self.skipped = self.skipped.saturating_sub(page),
            KeyCode::Home => self.skipped = 0,
            _ => {}
        }
    }

    fn show(&mut self, view: View) {
        self.view = view;
        self.skipped = 0;
    }

    fn order_by(&mut self, step: isize) {
        let shown = self.wanted.column(self.view);
        self.wanted.by = next(self.wanted.columns(self.view), shown, step);
    }
}

/// The entry `step` after `from`, in a circle.
fn next<T: Copy + PartialEq>(all: &[T], from: T, step: isize) -> T {
    let at = all.iter().position(|&entry| entry == from).unwrap_or(0);
    all[(at as isize + step).rem_euclid(all.len() as isize) as usize]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::row::Column;

    fn after(keys: &[KeyCode]) -> Controls {
        let mut controls = Controls::new(View::Tiers, Wanted::default());
        for &key in keys {
            controls.press(KeyEvent::from(key), 20);
        }
        controls
    }

    #[test]
    fn views_and_columns_go_round() {
        use KeyCode::{BackTab, Char, Tab};
        assert_eq!(after(&[Tab]).view, View::Cgroups);
        assert_eq!(after(&[BackTab]).view, View::Processes);
        assert_eq!(after(&[Char('3')]).view, View::Backends);
        assert_eq!(after(&[Char('5')]).view, View::Processes);
        assert_eq!(after(&[Char('3'), Char('9')]).view, View::Backends);
        assert_eq!(after(&[Char('<')]).wanted.by, Column::Name);
        assert_eq!(after(&[Char('<'), Char('<')]).wanted.by, Column::Floor);
        assert!(after(&[Char('i')]).wanted.is_ascending);
    }

    #[test]
    fn columns_are_those_of_the_view() {
        use KeyCode::Char;
        let by = |keys: &[KeyCode]| after(keys).wanted.by;
        assert_eq!(by(&[Char('5'), Char('>')]), Column::Preempted);
        assert_eq!(by(&[Char('5'), Char('<')]), Column::Threads);
        // P50, which processes do not have: the order is by CPU time there.
        let keys = [Char('>'), Char('>'), Char('5')];
        assert_eq!(by(&keys), Column::P50);
        let processes = after(&keys);
        assert_eq!(processes.wanted.column(processes.view), Column::Run);
        assert_eq!(by(&[&keys[..], &[Char('>')]].concat()), Column::Preempted);
    }

    #[test]
    fn column_of_locks_is_there_where_the_kernel_counts_waits() {
        use KeyCode::Char;
        let next = |view, has_locks| {
            let wanted = Wanted {
                by: Column::Background,
                has_locks,
                ..Wanted::default()
            };
            let mut controls = Controls::new(view, wanted);
            controls.press(KeyEvent::from(Char('>')), 20);
            controls.wanted.by
        };
        assert_eq!(next(View::Cgroups, true), Column::LockWait);
        assert_eq!(next(View::Cgroups, false), Column::P50);
        assert_eq!(next(View::Tiers, true), Column::P50);
    }

    #[test]
    fn letters_of_a_filter_are_no_commands() {
        use KeyCode::{Backspace, Char, Enter, Esc};
        let written = after(&[Char('/'), Char('q'), Char('i'), Backspace]);
        assert_eq!(written.wanted.filter, "q");
        assert!(!written.has_quit && written.is_filtering);
        let kept = after(&[Char('/'), Char('x'), Enter, Char('q')]);
        assert_eq!(kept.wanted.filter, "x");
        assert!(kept.has_quit);
        assert_eq!(after(&[Char('/'), Char('x'), Esc]).wanted.filter, "");
    }

    #[test]
    fn ctrl_c_quits_also_while_a_filter_is_written() {
        let mut controls = after(&[KeyCode::Char('/')]);
        controls.press(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL), 20);
        assert!(controls.has_quit && controls.wanted.filter.is_empty());
    }

    #[test]
    fn scrolling_does_not_leave_the_beginning() {
        use KeyCode::{Down, PageDown, PageUp, Tab, Up};
        assert_eq!(after(&[Up]).skipped, 0);
        assert_eq!(after(&[PageDown, Down]).skipped, 21);
        assert_eq!(after(&[Down, PageUp]).skipped, 0);
        assert_eq!(after(&[PageDown, Tab]).skipped, 0);
    }
}
