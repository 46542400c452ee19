//! One line of a trace as the kernel prints it.
//!
//! ```text
//!   my sleep-17627   [001] d..2.  2178.390936: sched_switch: prev_comm=my sleep ...
//!   task     thread  CPU   flags  time (s)     event         fields
//! ```
//!
//! (`trace_print_context` in the kernel's `kernel/trace/trace_output.c`, the
//! fields as the events' `format` files in tracefs have them.) With the option
//! `record-tgid` a process number in parentheses comes before the CPU. A name may
//! contain anything but a newline, so what is looked for are the words around it.
//! Where a CPU's buffer has run over, a line says `CPU:1 [LOST 72 EVENTS]`.
//!
//! Only the events of [`EVENTS`] are recorded, and 15 bytes of a thread's name have no room
//! for a CPU, a time and one of these names. So the first such words are the kernel's: what
//! is after them, as a cgroup's path, may be as long as its owner likes.
//!
//! Known weakness: a name with a newline in it makes its line unreadable. Such lines are
//! counted.

/// The events that are recorded, each with its subsystem.
pub const EVENTS: [(&str, &str); 5] = [
    ("sched", "sched_switch"),
    ("sched", "sched_waking"),
    ("sched", "sched_wakeup"),
    ("sched", "sched_wakeup_new"),
    ("cgroup", "cgroup_attach_task"),
];

/// What a line tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    /// Something happened.
    Event(Event),
    /// So many events of this CPU are missing.
    Lost {
        /// The CPU.
        cpu: u32,
        /// How many.
        events: u64,
    },
    /// A comment, an empty line, a move in another hierarchy than cgroup v2's.
    Other,
    /// A line that should be one of the above.
    Unreadable,
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// By the trace's clock.
    pub at_ns: u64,
    /// Where.
    pub cpu: u32,
    /// What.
    pub what: What,
}

/// A thread as an event names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Thread {
    /// 0: none, the CPU is idle.
    pub tid: u32,
    /// 15 bytes at most.
    pub name: String,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// The CPU went from one thread to another.
    Switch {
        /// The thread that left the CPU.
        prev: Thread,
        /// It would have gone on.
        is_runnable: bool,
        /// The thread that runs now.
        next: Thread,
    },
    /// Another thread, or an interrupt, begins to wake a thread up.
    Waking(Thread),
    /// A thread was woken up, or is new: it is in a CPU's run queue by now.
    Wakeup(Thread),
    /// A thread, or the process with this number, went to another cgroup.
    Moved(u32),
}

/// Reads one line.
pub fn read(line: &str) -> Line {
    if let Some(rest) = line.strip_prefix("CPU:") {
        return lost(rest).unwrap_or(Line::Unreadable);
    }
    if line.trim().is_empty() || line.starts_with('#') {
        return Line::Other;
    }
    let Some((head, name, fields)) = split(line) else {
        return Line::Unreadable;
    };
    let what = match name {
        "sched_switch" => switch(fields),
        "sched_waking" => woken(fields).map(What::Waking),
        "sched_wakeup" | "sched_wakeup_new" => woken(fields).map(What::Wakeup),
        // Of other hierarchies than cgroup v2's no tier is read.
        "cgroup_attach_task" if !fields.starts_with(" dst_root=0 ") => return Line::Other,
        _ => moved(fields),
    };
    let event = what
        .zip(stamp(head))
        .map(|(what, (cpu, at_ns))| Event { at_ns, cpu, what });
    event.map_or(Line::Unreadable, Line::Event)
}

fn lost(rest: &str) -> Option<Line> {
    let (cpu, rest) = rest.split_once(" [LOST ")?;
    let events = rest.split(' ').next()?.parse().ok()?;
    let cpu = cpu.parse().ok()?;
    Some(Line::Lost { cpu, events })
}

/// What is before the event's name, the name, its fields.
fn split(line: &str) -> Option<(&str, &str, &str)> {
    line.match_indices(": ").find_map(|(at, _)| {
        let head = &line[..at];
        let (name, fields) = line[at + 2..].split_once(':')?;
        let is_recorded = EVENTS.iter().any(|&(_, event)| event == name);
        let is_event = is_recorded && stamp(head).is_some();
        is_event.then_some((head, name, fields))
    })
}

/// The CPU and the time at the end of a head, in nanoseconds.
fn stamp(head: &str) -> Option<(u32, u64)> {
    let (rest, time) = head.rsplit_once(' ')?;
    let (seconds, fraction) = time.split_once('.')?;
    let seconds: u64 = seconds.parse().ok()?;
    let at_ns = seconds
        .checked_mul(1_000_000_000)?
        .checked_add(nanoseconds(fraction)?)?;
    // Flags, then the CPU.
    let rest = rest.trim_end();
    let (rest, _flags) = rest.rsplit_once(' ')?;
    let cpu = rest.trim_end().strip_suffix(']')?.rsplit_once('[')?.1;
    Some((cpu.parse().ok()?, at_ns))
}

/// Decimal places of a second.
fn nanoseconds(fraction: &str) -> Option<u64> {
    let digits = fraction.len() as u32;
    let number: u64 = fraction.parse().ok()?;
    number.checked_mul(10_u64.checked_pow(9_u32.checked_sub(digits)?)?)
}

fn switch(fields: &str) -> Option<What> {
    let (prev, next) = fields.split_once(" ==> next_comm=")?;
    let (name, rest) = prev
        .trim_start()
        .strip_prefix("prev_comm=")?
        .rsplit_once(" prev_pid=")?;
    let (tid, rest) = rest.split_once(' ')?;
    let state = rest.rsplit_once("prev_state=")?.1;
    let (next_name, rest) = next.rsplit_once(" next_pid=")?;
    let next_tid = rest.split(' ').next()?;
    Some(What::Switch {
        prev: thread(tid, name)?,
        // "R+": while in the kernel.
        is_runnable: state.starts_with('R'),
        next: thread(next_tid, next_name)?,
    })
}

fn woken(fields: &str) -> Option<Thread> {
    let (name, rest) = fields
        .trim_start()
        .strip_prefix("comm=")?
        .rsplit_once(" pid=")?;
    let tid = rest.split(' ').next()?;
    thread(tid, name)
}

fn moved(fields: &str) -> Option<What> {
    // A path may contain anything, and is before the number.
    let rest = fields.rsplit_once(" pid=")?.1;
    let tid = rest.split(' ').next()?;
    Some(What::Moved(tid.parse().ok()?))
}

fn thread(tid: &str, name: &str) -> Option<Thread> {
    Some(Thread {
        tid: tid.parse().ok()?,
        name: name.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn switch(
        cpu: u32,
        at_ns: u64,
        prev: (u32, &str),
        is_runnable: bool,
        next: (u32, &str),
    ) -> Line {
        let thread = |(tid, name): (u32, &str)| Thread {
            tid,
            name: name.into(),
        };
        Line::Event(Event {
            at_ns,
            cpu,
            what: What::Switch {
                prev: thread(prev),
                is_runnable,
                next: thread(next),
            },
        })
    }

    #[test]
    fn switches_and_wake_ups_are_read() {
        assert_eq!(
            read(
                "        my sleep-17627   [001] d..2.  2178.390936: sched_switch: \
                 prev_comm=my sleep prev_pid=17627 prev_prio=120 prev_state=S ==> \
                 next_comm=swapper/1 next_pid=0 next_prio=120"
            ),
            switch(
                1,
                2_178_390_936_000,
                (17627, "my sleep"),
                false,
                (0, "swapper/1")
            )
        );
        let woken = "          <idle>-0       [010] dNs4.  8.000001: sched_wakeup_new: \
                     comm=a: b pid=7 prio=120 target_cpu=003";
        let Line::Event(event) = read(woken) else {
            panic!("{:?}", read(woken));
        };
        assert_eq!((event.cpu, event.at_ns), (10, 8_000_001_000));
        let What::Wakeup(thread) = event.what else {
            panic!("{event:?}");
        };
        assert_eq!((thread.tid, thread.name.as_str()), (7, "a: b"));
        let waking = woken.replace("wakeup_new", "waking");
        let Line::Event(event) = read(&waking) else {
            panic!("{:?}", read(&waking));
        };
        assert_eq!(event.what, What::Waking(thread));
    }

    #[test]
    fn a_change_of_the_cgroup_is_read_in_cgroup_v2_only() {
        let line = |root| {
            format!(
                "sh-8 [001] d..2. 3.000000: cgroup_attach_task: dst_root={root} dst_id=99 \
                 dst_level=2 dst_path=/a pid=1/b pid=8 comm=sh"
            )
        };
        let moved = Event {
            at_ns: 3_000_000_000,
            cpu: 1,
            what: What::Moved(8),
        };
        assert_eq!(read(&line(0)), Line::Event(moved));
        assert_eq!(read(&line(7)), Line::Other);
    }

    #[test]
    fn a_preempted_thread_is_runnable_in_either_mode() {
        for (state, is_runnable) in [("R", true), ("R+", true), ("D", false), ("S|K", false)] {
            let line = format!(
                "sh-1 [000] d..2. 1.000000: sched_switch: prev_comm=sh prev_pid=1 \
                 prev_prio=120 prev_state={state} ==> next_comm=x next_pid=2 next_prio=1"
            );
            assert_eq!(
                read(&line),
                switch(0, 1_000_000_000, (1, "sh"), is_runnable, (2, "x")),
                "{state}"
            );
        }
    }

    #[test]
    fn names_may_contain_the_words_around_them() {
        let line = "x: [3] 1.0: y-4 ( 4) [002] d..2. 3.5: sched_switch: \
                    prev_comm=a prev_pid=9 prev_pid=4 prev_prio=120 prev_state=R ==> \
                    next_comm=b next_pid=8 next_pid=5 next_prio=120";
        assert_eq!(
            read(line),
            switch(
                2,
                3_500_000_000,
                (4, "a prev_pid=9"),
                true,
                (5, "b next_pid=8")
            )
        );
    }

    #[test]
    fn a_name_cannot_hide_its_thread() {
        let fields = "sched_switch: prev_comm=[1] d 1.0: x: prev_pid=4 prev_prio=120 \
                      prev_state=R ==> next_comm=b next_pid=5 next_prio=120";
        for name in [
            "[1] d 1.0: x:",
            "[1] d 1.0",
            "[1] 1.0: ",
            ": sched_switch:",
            "[1] d 9999999.",
        ] {
            let line = format!("{name:>16}-4       [002] d..2. 3.5: {fields}");
            let switch = switch(2, 3_500_000_000, (4, "[1] d 1.0: x:"), true, (5, "b"));
            assert_eq!(read(&line), switch, "{name}");
        }
        // Nor can a cgroup's path be another event.
        let line = format!(
            "sh-8 [001] d..2. 3.000000: cgroup_attach_task: dst_root=0 dst_id=99 dst_level=2 \
             dst_path=/a [002] d..2. 3.5: {fields} pid=8 comm=sh"
        );
        let moved = Event {
            at_ns: 3_000_000_000,
            cpu: 1,
            what: What::Moved(8),
        };
        assert_eq!(read(&line), Line::Event(moved));
    }

    #[test]
    fn what_is_lost_and_what_cannot_be_read_is_said() {
        assert_eq!(
            read("CPU:1 [LOST 72 EVENTS]"),
            Line::Lost { cpu: 1, events: 72 }
        );
        assert_eq!(read("CPU:1 [LOST EVENTS]"), Line::Unreadable);
        assert_eq!(read("# tracer: nop"), Line::Other);
        assert_eq!(
            read("a-1 [000] ..... 1.0: sched_stat_wait: comm=x"),
            Line::Unreadable
        );
        assert_eq!(
            read("a-1 [000] d..2. 1.0: sched_switch: prev_comm=x"),
            Line::Unreadable
        );
        assert_eq!(read("nonsense"), Line::Unreadable);
    }
}
