//! Lints and documentation of the workspace, from the commands that have compiled it.
//!
//! `cargo clippy` and `cargo doc` have all dependencies compiled a second time, by
//! `cargo check`, because they do not look at what `cargo build` has made. Here a
//! dependency is compiled once: whoever builds test programs has cargo start the compiler
//! by `lints/record.sh`, which records the command line and the environment of each crate
//! of the workspace. [`check`] repeats them with `clippy-driver` in place of the compiler,
//! and with `rustdoc`, for the crates that were compiled since they last passed. What is
//! compiled with its tests and without is looked at by the linter once, with them: what is
//! unused without them the compiler has refused by then, since the program that records
//! forbids warnings.
//!
//! ```text
//! target/debug/records/crates,locks,src,lib.rs         how the library was compiled
//! target/debug/records/crates,locks,src,lib.rs.test    the same with its tests
//! target/debug/records/….passed                        nothing to complain about, then
//! ```
//!
//! A record is of a source file, so one whose file has gone means nothing and is removed.
//!
//! Known weakness: it takes the compiler's arguments apart as cargo writes them. The linter
//! gets what is not known here, so a change there is an error; rustdoc gets what is known.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::thread;

use anyhow::{Context, Result, bail};

/// The variable by which cargo is told to compile the workspace by another program.
pub(crate) const WRAPPER: &str = "RUSTC_WORKSPACE_WRAPPER";

/// The program that records how.
pub(crate) fn recorder(root: &Path) -> PathBuf {
    root.join("xtask/src/lints/record.sh")
}

/// Looks at all crates that were compiled since they last passed, so many at once or as
/// many as there are CPUs.
///
/// # Errors
/// A lint or a page of documentation is wrong, a tool does not run, or there are no
/// records.
pub(crate) fn check(root: &Path, target: &Path, jobs: Option<usize>) -> Result<()> {
    let jobs = jobs.unwrap_or_else(|| thread::available_parallelism().map_or(1, usize::from));
    let records = target.join("debug/records");
    let due = due(root, &records)
        .with_context(|| format!("{}: nothing has been compiled", records.display()))?;
    let count = due.len();
    let scratch = target.join("lints/of-records");
    fs::create_dir_all(&scratch).with_context(|| scratch.display().to_string())?;
    let (due, complaints) = (Mutex::new(due), Mutex::new(0));
    let work = || -> Result<()> {
        // Its own statement: the lock is held no longer.
        while let Some(path) = { due.lock().expect("no one panics with it").pop() } {
            let compiled = fs::metadata(&path).and_then(|record| record.modified())?;
            let record = Record::read(&path)?;
            let said = record.complaints(&scratch, !has_tests(&path))?;
            if said.is_empty() {
                let passed = fs::File::create(passed(&path))?;
                // Not of now: it may have been compiled again meanwhile.
                passed.set_modified(compiled)?;
            } else {
                *complaints.lock().expect("no one panics with it") += 1;
                eprint!("{said}");
            }
        }
        Ok(())
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..jobs).map(|_| scope.spawn(work)).collect();
        let mut ends = threads.into_iter().map(|thread| thread.join());
        ends.try_for_each(|end| end.expect("work does not panic"))
    })?;
    // Nobody reads what the tools make.
    fs::remove_dir_all(&scratch)?;
    match complaints.into_inner().expect("no one has panicked") {
        0 => println!("lints and documentation: {count} compiled since, nothing to complain about"),
        crates => bail!("there is something to complain about in {crates} of {count} crates"),
    }
    Ok(())
}

/// The records of crates that were compiled since they last passed.
fn due(root: &Path, records: &Path) -> Result<Vec<PathBuf>> {
    let mut due = Vec::new();
    for entry in fs::read_dir(records)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.ends_with(".passed") || name.ends_with(".new") {
            continue;
        }
        let source = name.strip_suffix(".test").unwrap_or(&name);
        if !root.join(source.replace(',', "/")).exists() {
            fs::remove_file(&path)?;
            continue;
        }
        let compiled = fs::metadata(&path)?.modified()?;
        let looked_at = fs::metadata(passed(&path)).and_then(|passed| passed.modified());
        if looked_at.map_or(true, |looked_at| looked_at < compiled) {
            due.push(path);
        }
    }
    Ok(due)
}

/// Whether the same source was compiled with its tests, too.
fn has_tests(record: &Path) -> bool {
    let mut path = record.as_os_str().to_owned();
    path.push(".test");
    Path::new(&path).exists()
}

fn passed(record: &Path) -> PathBuf {
    let mut path = record.as_os_str().to_owned();
    path.push(".passed");
    path.into()
}

/// How a crate was compiled.
#[derive(Debug, PartialEq)]
struct Record {
    directory: OsString,
    /// The compiler and its arguments.
    compiler: OsString,
    args: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
}

impl Record {
    fn read(path: &Path) -> Result<Record> {
        let bytes = fs::read(path)?;
        Record::parse(&bytes).with_context(|| format!("{}: not a record", path.display()))
    }

    /// Directory, compiler, arguments, an empty word, variables; each ends with a NUL.
    fn parse(bytes: &[u8]) -> Option<Record> {
        let words = bytes.strip_suffix(&[0])?.split(|byte| *byte == 0);
        let mut words = words.map(|word| OsString::from_vec(word.to_vec()));
        let (directory, compiler) = (words.next()?, words.next()?);
        let args = words.by_ref().take_while(|word| !word.is_empty()).collect();
        let env = words.map(|word| {
            let mut name = word.into_vec();
            let equals = name.iter().position(|byte| *byte == b'=')?;
            let value = name.split_off(equals + 1);
            name.pop();
            Some((OsString::from_vec(name), OsString::from_vec(value)))
        });
        Some(Record {
            directory,
            compiler,
            args,
            env: env.collect::<Option<_>>()?,
        })
    }

    /// What the linter, if it is wanted, and documentation say; nothing if all is well.
    fn complaints(&self, scratch: &Path, is_linted: bool) -> Result<String> {
        let mut said = match is_linted {
            true => self.run(
                "clippy-driver",
                Some(&self.compiler),
                &lint(&self.args, scratch),
            )?,
            false => String::new(),
        };
        if let Some(args) = document(&self.args, scratch) {
            said += &self.run("rustdoc", None, &args)?;
        }
        Ok(said)
    }

    fn run(&self, tool: &str, first: Option<&OsString>, args: &[OsString]) -> Result<String> {
        // Cargo's job server has gone with it.
        let gone = |name: &OsString| name.to_string_lossy().ends_with("MAKEFLAGS");
        let env = self.env.iter().filter(|(name, _)| !gone(name));
        let output = Command::new(tool)
            .args(first)
            .args(args)
            .env_clear()
            .envs(env.map(|(name, value)| (name, value)))
            .current_dir(&self.directory)
            .output()
            .with_context(|| tool.to_owned())?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        Ok(match output.status.success() {
            true => String::new(),
            false if said.is_empty() => format!("{tool}: {}\n", output.status),
            false => said,
        })
    }
}

/// The compiler's arguments for the linter: it keeps nothing that anybody reads.
fn lint(args: &[OsString], scratch: &Path) -> Vec<OsString> {
    let mut lint = Vec::new();
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let text = arg.to_string_lossy();
        match text.as_ref() {
            "--out-dir" => {
                args.next();
            }
            // Cargo's own.
            _ if text.starts_with("--error-format=") || text.starts_with("--json=") => {}
            _ if text.starts_with("--diagnostic-width=") => {}
            _ if text.starts_with("incremental=") => {
                lint.pop();
            }
            _ if text.starts_with("--emit=") => lint.push("--emit=metadata".into()),
            _ => lint.push(arg.clone()),
        }
    }
    lint.extend(["--out-dir".into(), scratch.into()]);
    lint.extend(["-D", "warnings"].map(OsString::from));
    lint
}

/// The arguments of rustdoc that correspond, for libraries and programs. A program is
/// documented as it is compiled with its tests: without, it may not have been compiled.
fn document(args: &[OsString], scratch: &Path) -> Option<Vec<OsString>> {
    let all: Vec<_> = args.iter().map(|arg| arg.to_string_lossy()).collect();
    let source = all.iter().find(|arg| arg.ends_with(".rs"))?;
    let has_tests = all.iter().any(|arg| arg == "--test");
    if !source.contains("src/") || has_tests != source.ends_with("main.rs") {
        return None;
    }
    let mut document = vec![OsString::from(source.as_ref())];
    for (arg, next) in args.iter().zip(args.iter().skip(1)) {
        let text = arg.to_string_lossy();
        match text.as_ref() {
            "--crate-name" | "--crate-type" | "--cfg" | "--check-cfg" | "--extern" | "-L"
            | "--cap-lints" => document.extend([arg.clone(), next.clone()]),
            _ if text.starts_with("--edition=") => document.push(arg.clone()),
            _ => {}
        }
    }
    document.extend(["--document-private-items", "-D", "warnings", "-o"].map(OsString::from));
    // Not one for all: a program may have the name of a library.
    document.push(scratch.join("doc").join(source.replace('/', ",")).into());
    Some(document)
}

#[cfg(test)]
mod tests {
    use std::process::Output;
    use std::time::{Duration, SystemTime};

    use super::*;

    fn words(text: &str) -> Vec<OsString> {
        text.split(' ').map(OsString::from).collect()
    }

    /// A library as cargo has it compiled.
    const LIBRARY: &str = "--crate-name sample --edition=2024 src/lib.rs \
        --error-format=json --json=artifacts --crate-type lib --emit=dep-info,metadata,link \
        -C debuginfo=1 --deny=unsafe_op_in_unsafe_fn --check-cfg cfg(loom) -C metadata=12 \
        -C extra-filename=-12 --out-dir /t/debug/deps -C incremental=/t/debug/incremental \
        -L dependency=/t/debug/deps --extern anyhow=/t/debug/deps/libanyhow-3.rmeta";

    #[test]
    fn linter_gets_what_the_compiler_got_but_for_what_is_cargo_s() {
        let expected = "--crate-name sample --edition=2024 src/lib.rs --crate-type lib \
            --emit=metadata -C debuginfo=1 --deny=unsafe_op_in_unsafe_fn --check-cfg cfg(loom) \
            -C metadata=12 -C extra-filename=-12 -L dependency=/t/debug/deps \
            --extern anyhow=/t/debug/deps/libanyhow-3.rmeta --out-dir /s -D warnings";
        assert_eq!(lint(&words(LIBRARY), Path::new("/s")), words(expected));
    }

    #[test]
    fn documentation_is_made_of_libraries_and_programs() {
        let expected = "src/lib.rs --crate-name sample --edition=2024 --crate-type lib \
            --check-cfg cfg(loom) -L dependency=/t/debug/deps \
            --extern anyhow=/t/debug/deps/libanyhow-3.rmeta --document-private-items \
            -D warnings -o /s/doc/src,lib.rs";
        let scratch = Path::new("/s");
        assert_eq!(document(&words(LIBRARY), scratch), Some(words(expected)));
        let of = |source: &str, more: &str| {
            let args = LIBRARY.replace("src/lib.rs", source) + more;
            document(&words(&args), scratch).is_some()
        };
        assert!(of("src/main.rs", " --test") && !of("src/main.rs", ""));
        assert!(!of("src/lib.rs", " --test"));
        assert!(!of("tests/long/main.rs", " --test") && !of("build.rs", ""));
    }

    /// A crate, and a directory as cargo has it compiled to.
    struct Sample(tempfile::TempDir);

    impl Sample {
        fn of(text: &str) -> Sample {
            let sample = Sample(tempfile::tempdir().unwrap());
            fs::create_dir_all(sample.root().join("src")).unwrap();
            fs::create_dir_all(sample.target().join("debug/deps")).unwrap();
            sample.write(text);
            sample
        }

        fn root(&self) -> &Path {
            self.0.path()
        }

        fn target(&self) -> PathBuf {
            self.root().join("target")
        }

        fn write(&self, text: &str) {
            fs::write(self.root().join("src/lib.rs"), text).unwrap();
        }

        fn compile(&self) -> Output {
            self.compile_with(&[])
        }

        fn compile_with(&self, more: &[&str]) -> Output {
            let mut command = Command::new(recorder(&crate::root()));
            command
                .args(["rustc", "--crate-name", "sample", "--edition=2024"])
                .args(["src/lib.rs", "--crate-type", "lib", "--emit=metadata"])
                .args(["-C", "extra-filename=-12", "--out-dir"])
                .arg(self.target().join("debug/deps"))
                .args(more)
                // As of a program with a hyphen, by which tests find it.
                .env("CARGO_BIN_EXE_a-b", "/t/a-b")
                .current_dir(self.root());
            command.output().unwrap()
        }

        fn check(&self) -> Result<()> {
            check(self.root(), &self.target(), Some(2))
        }

        fn due(&self) -> usize {
            due(self.root(), &self.target().join("debug/records"))
                .unwrap()
                .len()
        }
    }

    #[test]
    fn what_was_compiled_is_looked_at_once() {
        let sample = Sample::of(
            "//! Says where.\n/// Is known.\npub const B: &str = env!(\"CARGO_BIN_EXE_a-b\");\n",
        );
        assert!(sample.compile().status.success());
        assert_eq!(sample.due(), 1);
        let record = Record::read(&sample.target().join("debug/records/src,lib.rs")).unwrap();
        let variable = ("CARGO_BIN_EXE_a-b".into(), "/t/a-b".into());
        assert!(record.env.contains(&variable), "{record:?}");
        sample.check().unwrap();
        assert_eq!(sample.due(), 0);
        // As after a change: the compiler ran once more.
        let record = sample.target().join("debug/records/src,lib.rs");
        let later = SystemTime::now() + Duration::from_secs(1);
        fs::File::open(&record)
            .unwrap()
            .set_modified(later)
            .unwrap();
        assert_eq!(sample.due(), 1);
        fs::remove_file(sample.root().join("src/lib.rs")).unwrap();
        assert_eq!(sample.due(), 0);
        assert!(!record.exists());
    }

    #[test]
    fn lints_and_what_documentation_lacks_are_complaints() {
        let wrong = [
            "//! Clippy's.\n/// Returns.\npub fn one() -> u32 {\n    return 1;\n}\n",
            "//! A link to [`Nothing`].\n",
        ];
        for text in wrong {
            let sample = Sample::of(text);
            assert!(sample.compile().status.success());
            for _ in 0..2 {
                let error = sample.check().unwrap_err().to_string();
                assert!(error.contains("1 of 1 crates"), "{error}");
            }
            assert_eq!(sample.due(), 1);
            sample.write("//! Right.\n");
            sample.check().unwrap();
        }
    }

    #[test]
    fn what_does_not_compile_or_is_unused_leaves_no_record_and_fails() {
        for text in ["nonsense", "//! Unused.\nfn nothing() {}\n"] {
            let sample = Sample::of(text);
            assert!(!sample.compile().status.success());
            assert!(!sample.target().join("debug/records").exists());
            assert!(sample.check().is_err());
        }
    }

    #[test]
    fn what_is_compiled_with_its_tests_is_linted_with_them() {
        let clippy_s = "pub fn one() -> u32 {\n    return 1;\n}\n";
        let sample = Sample::of(&format!("//! Two.\n/// Returns.\n{clippy_s}"));
        assert!(sample.compile().status.success());
        assert!(sample.compile_with(&["--test"]).status.success());
        let error = sample.check().unwrap_err().to_string();
        assert!(error.contains("1 of 2 crates"), "{error}");
        sample.write("//! Right.\n");
        assert!(sample.compile_with(&["--test"]).status.success());
        sample.check().unwrap();
    }

    #[test]
    fn record_has_directory_compiler_arguments_and_variables() {
        let record = Record::parse(b"/tree\0rustc\0--test\0\0A=b=c\0D=\0").unwrap();
        let variable = |name: &str, value: &str| (name.into(), value.into());
        let expected = Record {
            directory: "/tree".into(),
            compiler: "rustc".into(),
            args: words("--test"),
            env: vec![variable("A", "b=c"), variable("D", "")],
        };
        assert_eq!(record, expected);
        assert_eq!(Record::parse(b""), None);
    }
}
