//! Tiers at the kernel's locks, on a kernel that schedules them
//! (`docs/design/cfl-kernel.md`): `make test-cfl-kernel`.
//!
//! The tests in [`guest`] need such a kernel, so they are ignored elsewhere. The one outside
//! runs them, with this same program, in a guest. That kernel loads no scheduler: the
//! weights that UFS would set are set here by the same code, and its answers are made up.
//!
//! Not among the tests that cargo runs unasked (`test = false` in Cargo.toml).

use std::time::Duration;

use assert_cmd::cargo::cargo_bin;
use giveway_lab::{Job, Lab, LabSpec, Lines, Machine};

#[test]
fn tiers_count_at_the_locks_of_a_kernel_with_cfl() {
    let spec = LabSpec {
        series: Some("cfl".to_owned()),
        ..LabSpec::default()
    };
    let machine = Machine {
        cpus: 2,
        timeout: Duration::from_secs(1800),
        ..Machine::default()
    };
    let job = Job::script("./tests guest:: --ignored --nocapture --test-threads 1")
        .file(cargo_bin!("giveway"), "giveway")
        .file(std::env::current_exe().unwrap(), "tests");
    let mut lines = Vec::new();
    let outcome = Lab::open(&spec, &Lines)
        .unwrap()
        .run(&machine, &job, &mut |line| lines.push(line.to_owned()))
        .unwrap();
    assert_eq!(outcome.status, 0, "{lines:#?}");
    let has_run = |line: &String| line.contains("test result: ok. 3 passed");
    assert!(lines.iter().any(has_run), "{lines:#?}");
}

mod guest {
    use std::fs;
    use std::io::{BufRead as _, BufReader, Write as _};
    use std::os::unix::fs::MetadataExt as _;
    use std::os::unix::net::UnixListener;
    use std::path::Path;
    use std::process::{Child, Command};
    use std::thread;

    use giveway_machine::cgroup::{Cgroup, MOUNT};
    use giveway_machine::lock_weights::LockWeights;
    use serde_json::{Value, json};

    const CLASS: &str = "/sys/kernel/debug/cfl/classes/cfl_test";
    const HOLD: &str = "/sys/kernel/debug/cfl_test/hold";

    fn make(path: &str) -> Cgroup {
        Cgroup::make(Path::new(MOUNT).join(path)).unwrap()
    }

    fn giveway(args: &[&str]) -> String {
        let output = Command::new("./giveway").args(args).output().unwrap();
        assert!(output.status.success(), "{args:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    #[test]
    #[ignore = "runs in a guest with CFL"]
    fn run_has_the_weights_of_its_tier_and_its_own() {
        let script = "cd /sys/fs/cgroup; cat .$(cut -d: -f3 /proc/self/cgroup)/lock.weight \
                      giveway/background/lock.weight giveway/time_sensitive/lock.weight \
                      giveway/lock.weight";
        let weights = |tier| {
            let said = giveway(&["run", "-q", "-t", tier, "-w", "50", "sh", "-c", script]);
            said.split_whitespace()
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        assert_eq!(weights("background"), ["50", "1", "10000", "1"]);
        assert_eq!(weights("time_sensitive"), ["50", "1", "10000", "100"]);
    }

    #[test]
    #[ignore = "runs in a guest with CFL"]
    fn weights_are_set_and_put_back() {
        let dir = tempfile::tempdir().unwrap();
        let record = dir.path().join("lock-weights");
        let (slice, inner, other) = (make("slice"), make("slice/inner"), make("slice/other"));
        let set = || {
            let mut weights = LockWeights::new(MOUNT, &record);
            weights.set(&[(inner.dir().into(), 50)]).unwrap();
            assert_eq!(inner.read("lock.weight").unwrap(), "50");
            assert_eq!(other.read("lock.weight").unwrap(), "100");
            weights
        };
        set().put_back();
        assert!(!slice.has_below("lock") && !inner.file("lock.weight").exists());
        assert!(!record.exists());
        // As if the program had been killed.
        drop(set());
        LockWeights::put_back_of(&record);
        assert!(!slice.has_below("lock") && !record.exists());
        // An administrator's, given meanwhile, counts on.
        let mut weights = set();
        other.write("lock.weight", "300").unwrap();
        weights.put_back();
        assert_eq!(inner.read("lock.weight").unwrap(), "100");
        assert_eq!(other.read("lock.weight").unwrap(), "300");
    }

    /// A shell in a cgroup that holds a lock for a millisecond, again and again.
    fn holder(cgroup: &Cgroup) -> Child {
        let procs = cgroup.file("cgroup.procs");
        let script = format!(
            "echo $$ >{} && while :; do echo 1000000 >{HOLD}; done",
            procs.display()
        );
        Command::new("sh").args(["-c", &script]).spawn().unwrap()
    }

    #[test]
    #[ignore = "runs in a guest with CFL"]
    fn top_and_metrics_have_waits_of_a_cgroup() {
        let waiters = make("waiters");
        let id = fs::metadata(waiters.dir()).unwrap().ino();
        Cgroup::at(MOUNT).enable("+lock").unwrap();
        fs::write(CLASS, "1").unwrap();
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("stats");
        let listener = UnixListener::bind(&socket).unwrap();
        thread::spawn(move || {
            let mut ran_ns = 0;
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut asked = String::new();
                BufReader::new(&stream).read_line(&mut asked).unwrap();
                ran_ns += 1_000_000;
                let cgroup = json!({
                    "path": "/waiters", "tier": "background", "weight": 100,
                    "background_ns": ran_ns,
                });
                let said = json!({
                    "errno": 0,
                    "args": {"resp": {"tiers": {}, "cgroups": {(id.to_string()): cgroup}}},
                });
                writeln!(stream, "{said}").unwrap();
            }
        });
        let socket = ["--socket", socket.to_str().unwrap()];
        let holders = [(); 3].map(|()| holder(&waiters));
        let json = giveway(&[&["top", "--once", "--json"], &socket[..]].concat());
        let table = giveway(&[&["top", "--once"], &socket[..]].concat());
        let metrics = giveway(&[&["metrics"], &socket[..]].concat());
        for mut holder in holders {
            holder.kill().unwrap();
            holder.wait().unwrap();
        }
        let json: Value = serde_json::from_str(&json).unwrap();
        let row = &json["cgroups"][0];
        // One of three holds the lock at any time, and two wait.
        let waited = row["lock_wait_ns"].as_u64().unwrap() as f64 / 1e9;
        let interval = json["interval_s"].as_f64().unwrap();
        assert!((1.3..3.0).contains(&(waited / interval)), "{json:#}");
        assert!(table.contains("LOCK %"), "{table}");
        let series =
            format!("giveway_cgroup_lock_wait_seconds_total{{cgroup=\"/waiters\",id=\"{id}\"}} ");
        let total = metrics.lines().find_map(|line| line.strip_prefix(&series));
        assert!(total.unwrap().parse::<f64>().unwrap() > waited, "{metrics}");
    }
}
