//! Programs that other people wrote, unmodified: what they compute is the same
//! on our locks as on glibc's, and their own checks pass.

use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use tempfile::tempdir;

use crate::support::{command, counting, installed, preload, reports, run, total};

const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs");

/// Keys that RocksDB holds after a load by four threads, and what its own
/// checks say.
fn rocksdb(directory: &Path, prepare: impl Fn(&mut Command)) -> String {
    let database = format!("--db={}/db", directory.display());
    let mut bench = command("db_bench");
    bench.args([
        // All keys, written again and again by all threads and, until the
        // readers are done, by one: enough for flushes and compactions in the
        // background.
        "--benchmarks=fillseq,overwrite,readwhilewriting,compact,verifychecksum",
        "--threads=4",
        "--num=6000",
        "--key_size=16",
        "--value_size=400",
        "--seed=7",
        "--write_buffer_size=1000000",
        "--target_file_size_base=1000000",
        "--max_background_jobs=4",
        "--compression_type=none",
        &database,
    ]);
    prepare(&mut bench);
    let benched = run(&mut bench);
    assert_eq!(
        benched.code,
        Some(0),
        "{}{}",
        benched.stdout,
        benched.stderr
    );
    let mut said = String::new();
    for line in benched.stdout.lines() {
        // Figures differ; which benchmarks ran does not.
        if let Some((name, _)) = line.split_once(" : ") {
            said += name.trim();
            said += "\n";
        }
    }
    for check in [&["checkconsistency"][..], &["scan", "--hex", "--no_value"]] {
        let mut ldb = command("ldb");
        ldb.arg(&database).args(check);
        prepare(&mut ldb);
        let checked = run(&mut ldb);
        assert_eq!(
            checked.code,
            Some(0),
            "{}{}",
            checked.stdout,
            checked.stderr
        );
        said += &checked.stdout;
    }
    said
}

#[test]
fn rocksdb_holds_the_same_keys() {
    if !installed("db_bench", "rocksdb-tools") {
        return;
    }
    let (glibcs, ours) = (tempdir().unwrap(), tempdir().unwrap());
    let expected = rocksdb(glibcs.path(), |_| {});
    assert!(expected.lines().count() > 6000, "{expected}");
    assert!(expected.contains("OK"), "{expected}");
    let settings = counting(
        ours.path(),
        "group front weight=800 threads=db_bench; group back weight=100 threads=rocksdb:*",
    );
    let said = rocksdb(ours.path(), |command| {
        preload(command.env("GIVEWAY_CFL", &settings));
    });
    // Not assert_eq: it would print some ten thousand keys.
    assert!(said == expected, "other keys, or other answers");
    let reports = reports(ours.path());
    assert!(total(&reports, "acquisitions") > 10_000);
    // The background threads are named by whoever starts them.
    let back = (reports
        .iter()
        .flat_map(|report| report["groups"].as_array().unwrap()))
    .filter(|group| group["name"] == "back")
    .map(|group| group["acquisitions"].as_u64().unwrap())
    .max();
    assert!(back > Some(0), "{back:?}");
}

#[test]
fn python_and_sqlite_compute_the_same() {
    if !installed("python3", "python3") {
        return;
    }
    let python = |directory: &Path, prepare: &dyn Fn(&mut Command)| {
        let mut python = command("python3");
        python
            .arg(format!("{SOURCES}/workload.py"))
            .arg(directory.join("data.db"));
        prepare(&mut python);
        let mut said = run(&mut python).good();
        if installed("sqlite3", "sqlite3") {
            let mut shell = command("sqlite3");
            shell
                .arg(directory.join("data.db"))
                .arg("pragma integrity_check; select writer, count(*), sum(n) from log group by 1");
            prepare(&mut shell);
            said += &run(&mut shell).good();
        }
        said
    };
    let (glibcs, ours) = (tempdir().unwrap(), tempdir().unwrap());
    let expected = python(glibcs.path(), &|_| {});
    assert!(expected.contains("integrity [('ok',)]"), "{expected}");
    let settings = counting(ours.path(), "");
    let said = python(ours.path(), &|command| {
        preload(command.env("GIVEWAY_CFL", &settings));
    });
    assert_eq!(said, expected);
    assert!(total(&reports(ours.path()), "acquisitions") > 1000);
}

/// A server that does not outlive the test.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        // It may be gone already; then there is nothing to do.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn memcached_keeps_its_values() {
    if !installed("memcached", "memcached") || !installed("python3", "python3") {
        return;
    }
    let memcached = |directory: &Path, prepare: &dyn Fn(&mut Command)| {
        let socket = directory.join("socket");
        let mut server = command("memcached");
        server
            .args(["-t", "4", "-m", "64", "-u", "root", "-s"])
            .arg(&socket);
        prepare(&mut server);
        let mut server = Server(server.spawn().unwrap());
        // The client is the same in both runs.
        let mut client = command("python3");
        client
            .arg(format!("{SOURCES}/memcached_client.py"))
            .arg(&socket);
        let said = run(&mut client).good();
        // Asked to end, so that it runs its exit handlers.
        let id = server.0.id().to_string();
        assert_eq!(run(command("kill").args(["-TERM", &id])).code, Some(0));
        assert!(server.0.wait().unwrap().success());
        said
    };
    let (glibcs, ours) = (tempdir().unwrap(), tempdir().unwrap());
    let expected = memcached(glibcs.path(), &|_| {});
    assert!(expected.starts_with("wrong []\n"), "{expected}");
    let settings = counting(ours.path(), "");
    let said = memcached(ours.path(), &|command| {
        preload(command.env("GIVEWAY_CFL", &settings));
    });
    assert_eq!(said, expected);
    assert!(total(&reports(ours.path()), "acquisitions") > 1000);
}

/// The transactions of one client: money moved between accounts, each noted in
/// a log, in an order of accounts that cannot deadlock.
fn transfers(client: u32) -> String {
    let transfer = |round: u32| {
        let (one, other) = ((client * 7 + round) % 64, (client * 11 + round * 3) % 64);
        let (from, to) = (one.min(other), one.max(other));
        format!(
            "start transaction; update accounts set money = money - {round} where id = {from}; \
             update accounts set money = money + {round} where id = {to}; \
             insert into log (client, text) values ({client}, '{from} to {to}'); commit; \
             insert into rounds (round) values ({round}); select sum(money) from accounts;"
        )
    };
    (1..=60).map(transfer).collect()
}

/// What a MariaDB holds after eight clients were at it, and what its check says.
fn mariadb(directory: &Path, prepare: &dyn Fn(&mut Command)) -> String {
    let file = |name: &str| directory.join(name).display().to_string();
    let (data, socket) = (file("data"), file("socket"));
    let mut install = command("mariadb-install-db");
    install.args(["--no-defaults", "--user=root", "--skip-test-db"]);
    install.args(["--auth-root-authentication-method=normal"]);
    let installed = run(install.arg(format!("--datadir={data}")));
    assert_eq!(installed.code, Some(0), "{}", installed.stderr);

    let mut server = command("mariadbd");
    server
        .args(["--no-defaults", "--user=root", "--skip-networking"])
        .args([format!("--datadir={data}"), format!("--socket={socket}")])
        .args([format!("--log-error={}", file("log"))])
        .args(["--innodb-buffer-pool-size=32M", "--innodb-log-file-size=8M"]);
    prepare(&mut server);
    let mut server = Server(server.spawn().unwrap());
    let client = |program: &str, arguments: &[&str]| {
        let mut client = command(program);
        client.args(["--no-defaults", "--user=root", "--socket", &socket]);
        run(client.args(arguments))
    };
    let started = Instant::now();
    while client("mariadb-admin", &["ping"]).code != Some(0) {
        assert!(started.elapsed() < Duration::from_secs(50), "no server");
        std::thread::sleep(Duration::from_millis(50));
    }
    let ask = |sql: &str| client("mariadb", &["--database=bank", "--batch", "--execute", sql]);
    let make = "create database bank; use bank; \
         create table accounts (id int primary key, money bigint) engine=innodb; \
         insert into accounts select seq, 1000 from seq_0_to_63; \
         create table log (id int auto_increment primary key, client int, text varchar(20), \
         key (client)) engine=innodb; \
         create table rounds (id int auto_increment primary key, round int) engine=aria";
    client("mariadb", &["--execute", make]).good();
    std::thread::scope(|scope| {
        let clients = [0, 1, 2, 3, 4, 5, 6, 7].map(|number| {
            let ask = &ask;
            scope.spawn(move || ask(&transfers(number)).good())
        });
        for client in clients {
            // No transaction is seen half done.
            let sums = client.join().unwrap();
            let others = |line: &&str| !line.starts_with("sum") && *line != "64000";
            assert_eq!(sums.lines().find(others), None);
        }
    });
    let mut said = ask(
        "select * from accounts order by id; select client, text from log order by client, text; \
         select round, count(*) from rounds group by round order by round",
    )
    .good();
    said += &client("mariadb-check", &["--check", "--extended", "bank"]).good();
    client("mariadb-admin", &["shutdown"]).good();
    assert!(server.0.wait().unwrap().success());
    said
}

#[test]
fn mariadb_keeps_its_data() {
    if !installed("mariadbd", "mariadb-server-core mariadb-client") {
        return;
    }
    let (glibcs, ours) = (tempdir().unwrap(), tempdir().unwrap());
    let expected = mariadb(glibcs.path(), &|_| {});
    assert_eq!(expected.matches(" OK\n").count(), 3, "{expected}");
    let settings = counting(ours.path(), "");
    let said = mariadb(ours.path(), &|command| {
        preload(command.env("GIVEWAY_CFL", &settings));
    });
    assert!(said == expected, "other books, or other answers");
    assert!(total(&reports(ours.path()), "acquisitions") > 10_000);
}
