//! Manual pages and completions, made from the declaration of a command line.
//! Every program has both as commands; packages ship what they write.

use std::fs;
use std::io::Write;
use std::path::PathBuf;

use clap::{Args, Command};
use clap_complete::Shell;

use crate::failure::{Context, Failure};

/// Print completions for a shell
#[derive(Args, Debug)]
pub struct CompletionsArgs {
    /// The shell to complete in
    shell: Shell,
}

/// Write the manual pages into a directory
#[derive(Args, Debug)]
pub struct ManArgs {
    /// Directory for the pages; made if it is not there
    dir: PathBuf,
}

impl CompletionsArgs {
    /// Prints the completions of `command`, whose file is `program`.
    ///
    /// # Errors
    /// Standard output cannot be written.
    pub fn print(&self, mut command: Command, program: &str) -> Result<(), Failure> {
        // Generated in memory: clap_complete panics when a pipe breaks.
        let mut text = Vec::new();
        clap_complete::generate(self.shell, &mut command, program, &mut text);
        Ok(std::io::stdout().write_all(&text)?)
    }
}

impl ManArgs {
    /// Writes one page for `command` and one for each command below it, but for those
    /// named in `apart`: these are programs that write their pages themselves.
    ///
    /// # Errors
    /// The directory cannot be made or written.
    pub fn write(&self, command: Command, apart: &[&str]) -> Result<(), Failure> {
        fs::create_dir_all(&self.dir).cannot(format_args!("make {}", self.dir.display()))?;
        let command = command.disable_help_subcommand(true);
        let hide =
            |command: Command, name: &&str| command.mut_subcommand(name, |below| below.hide(true));
        let mut command = apart.iter().fold(command, hide);
        command.build();
        let what = || format!("write the pages to {}", self.dir.display());
        let page = clap_mangen::Man::new(command.clone());
        page.generate_to(&self.dir).cannot(what())?;
        for below in command.get_subcommands() {
            if !below.is_hide_set() {
                clap_mangen::generate_to(below.clone(), &self.dir).cannot(what())?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_command_has_a_page_but_those_of_other_programs() {
        let dir = tempfile::tempdir().unwrap();
        let leaf = |name: &'static str| Command::new(name);
        let command = Command::new("giveway")
            .subcommand(leaf("meta").subcommand(leaf("run")))
            .subcommand(leaf("sql").subcommand(leaf("serve")))
            .subcommand(leaf("cell").hide(true));
        let man = ManArgs {
            dir: dir.path().join("new"),
        };
        man.write(command, &["sql"]).unwrap();
        let pages = fs::read_dir(dir.path().join("new")).unwrap();
        let names: BTreeSet<_> = pages.map(|page| page.unwrap().file_name()).collect();
        let expected = ["giveway.1", "giveway-meta.1", "giveway-meta-run.1"];
        assert_eq!(names, expected.map(Into::into).into());
    }
}
