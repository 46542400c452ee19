//! What guests say whose job has to succeed.

use giveway_lab::{Job, Lab, Machine};

/// The lines of a job. Under the lockstep clock they may be kept (`Lab::answer`): what a
/// test concludes from them depends on nothing but what the guest is given.
pub(crate) fn lines(lab: &Lab, machine: &Machine, job: &Job) -> Vec<String> {
    let mut lines = Vec::new();
    let answer = lab.answer(machine, job, &mut |line| lines.push(line.to_owned()));
    let answer = answer.unwrap_or_else(|error| panic!("{error}\n{lines:#?}"));
    assert_eq!(answer.status, 0, "{lines:#?}");
    if answer.is_kept {
        println!("KEPT: what the guest said");
    }
    lines
}

/// The lines of a job that is run now, and said the same before.
#[allow(dead_code, reason = "not every target repeats a run")]
pub(crate) fn repeated(lab: &Lab, machine: &Machine, job: &Job) -> Vec<String> {
    let repeat = lab.repeat(machine, job);
    let repeat = repeat.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(repeat.status, 0, "{:#?}", repeat.lines);
    if repeat.is_kept {
        println!("KEPT: what the guest said before");
    }
    repeat.lines
}
