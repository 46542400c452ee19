//! Who a process is, as `/proc` has it. Each call may find that it has ended.

use std::fs;

/// What `/proc/PID/status` says of a process.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Person {
    /// The process of which this is a thread.
    pub(super) leader: u32,
    pub(super) parent: u32,
    uid: u32,
    /// The effective user, whose table UFS looks into.
    pub(super) user: u32,
    gids: Vec<u32>,
}

impl Person {
    fn parse(status: &str) -> Option<Person> {
        let numbers = |key: &str| -> Option<Vec<u32>> {
            let line = status.lines().find_map(|line| line.strip_prefix(key))?;
            line.split_whitespace()
                .map(|word| word.parse().ok())
                .collect()
        };
        let mut gids = numbers("Groups:")?;
        // The effective one: the second.
        gids.push(*numbers("Gid:")?.get(1)?);
        Some(Person {
            leader: *numbers("Tgid:")?.first()?,
            parent: *numbers("PPid:")?.first()?,
            uid: *numbers("Uid:")?.first()?,
            user: *numbers("Uid:")?.get(1)?,
            gids,
        })
    }

    /// Whether its slot may raise it above its cgroup's tier, as UFS decides it:
    /// by the real user and the effective groups.
    pub(super) fn may_rise(&self, raise_gid: u32) -> bool {
        self.uid == 0 || self.gids.contains(&raise_gid)
    }

    pub(super) fn of(pid: u32) -> Option<Person> {
        Person::parse(&fs::read_to_string(format!("/proc/{pid}/status")).ok()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_read_as_the_kernel_writes_it() {
        let status = "Name:\tpostgres\nTgid:\t12\nPid:\t12\nPPid:\t7\nUid:\t26\t0\t0\t0\n\
                      Gid:\t26\t27\t0\t0\nGroups:\t42 43 \n";
        let person = Person {
            leader: 12,
            parent: 7,
            uid: 26,
            user: 0,
            gids: vec![42, 43, 27],
        };
        assert!(person.may_rise(27) && person.may_rise(42) && !person.may_rise(0));
        assert_eq!(Person::parse(status), Some(person));
        assert_eq!(Person::parse("Name:\tx\n"), None);
    }
}
