//! Manual pages and completions, made from the declaration of a command line.
//! Every program has both as commands; packages ship what they write.

use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;

use clap::{Args, Command};
use clap_complete::Shell;
use clap_mangen::Man;

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
    /// The directory cannot be made or written to.
    pub fn write(&self, command: Command, apart: &[&str]) -> Result<(), Failure> {
        let command = command.disable_help_subcommand(true);
        let hide =
            |command: Command, name: &&str| command.mut_subcommand(name, |below| below.hide(true));
        let mut command = apart.iter().fold(command, hide);
        command.build();
        fs::create_dir_all(&self.dir)
            .and_then(|()| self.pages(&command))
            .cannot(format_args!("write the pages to {}", self.dir.display()))
            .map_err(|failure| failure.with_remedy("name a directory that you may write to"))
    }

    /// Writes the page of a command, and those of what is below it and not hidden.
    fn pages(&self, command: &Command) -> io::Result<()> {
        Man::new(command.clone())
            // An empty date: without one the source would be in its place.
            .date("\"\"")
            .source(concat!("giveway ", env!("CARGO_PKG_VERSION")))
            .manual("Giveway")
            .generate_to(&self.dir)?;
        let below = command.get_subcommands();
        for below in below.filter(|below| !below.is_hide_set()) {
            self.pages(below)?;
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
        let page = fs::read_to_string(dir.path().join("new/giveway-meta-run.1")).unwrap();
        let version = env!("CARGO_PKG_VERSION");
        let title = format!(".TH giveway-meta-run 1 \"\" \"giveway {version}\" Giveway\n");
        assert!(page.contains(&title), "{page}");
    }

    #[test]
    fn directory_that_cannot_be_made_has_a_remedy() {
        let man = ManArgs {
            dir: "/proc/no/such".into(),
        };
        let said = man.write(Command::new("giveway"), &[]).unwrap_err();
        assert!(
            said.to_string().contains("\nremedy: name a directory"),
            "{said}"
        );
    }
}
