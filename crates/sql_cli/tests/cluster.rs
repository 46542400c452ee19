//! A cluster of real processes on this machine: answers, priorities, and what becomes of
//! queries when a worker goes.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use assert_cmd::cargo::cargo_bin;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::Deserialize;
use serde_json::Value;
use tempfile::TempDir;

/// Keeps all workers busy for hours, and needs little memory.
const ENDLESS: &str = "SELECT count(*) FROM lineitem a JOIN lineitem b ON a.l_suppkey = b.l_suppkey \
                       JOIN lineitem c ON a.l_suppkey = c.l_suppkey \
                       WHERE a.l_comment || b.l_comment <> c.l_comment";
/// What files have to be read for.
const SUM: &str = "SELECT sum(l_quantity) AS sum FROM lineitem";
const SCALE: &str = "0.01";
/// Within which a worker that has gone is to be told of.
const TOLD: Duration = Duration::from_secs(5);

fn giveway(args: &[&str]) -> Command {
    let mut command = Command::new(cargo_bin!("giveway-sql"));
    command
        .args(args)
        .env_remove("GIVEWAY_SQL_PASSWORD")
        .env_remove("GIVEWAY_SQL_CLUSTER_PASSWORD")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// TPC-H as files, made once. The largest table has many row groups: a group is read by one
/// worker, and all are to have some.
fn data() -> &'static str {
    static DATA: OnceLock<TempDir> = OnceLock::new();
    let dir = DATA.get_or_init(|| {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().to_str().unwrap();
        let run = |args: &[&str]| {
            let made = giveway(args).output().unwrap();
            assert!(made.status.success(), "{args:?}: {}", error(&made));
        };
        run(&["tpch", "--sf", SCALE, "--out", out]);
        let (written, divided) = (
            dir.path().join("lineitem"),
            format!("{out}/divided.parquet"),
        );
        let copy =
            format!("COPY lineitem TO '{divided}' OPTIONS ('format.max_row_group_size' '2048')");
        run(&[
            "--table",
            &format!("lineitem={}", written.display()),
            "-c",
            &copy,
        ]);
        fs::remove_dir_all(&written).unwrap();
        fs::rename(&divided, dir.path().join("lineitem.parquet")).unwrap();
        dir
    });
    dir.path().to_str().unwrap()
}

/// A server or worker, ended by force when it is dropped.
struct Server {
    child: Child,
    address: String,
}

impl Server {
    fn start(command: &mut Command) -> Server {
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        let Some(address) = line.trim().strip_prefix("listening on grpc://") else {
            panic!("{line}: {}", said(&mut child));
        };
        Server {
            address: address.to_owned(),
            child,
        }
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id() as i32), signal).unwrap();
    }

    /// Asks it; a script or a statement.
    fn ask(&self, statements: &[&str]) -> Output {
        self.asking(statements)
            .spawn()
            .unwrap()
            .wait_with_output()
            .unwrap()
    }

    fn asking(&self, statements: &[&str]) -> Command {
        let url = format!("grpc://{}", self.address);
        let mut command = giveway(&["--connect", &url, "--format", "csv"]);
        for statement in statements {
            command.args(["-c", statement]);
        }
        command
    }

    fn answer(&self, statement: &str) -> String {
        let output = self.ask(&[statement]);
        assert!(output.status.success(), "{statement}: {}", error(&output));
        text(&output.stdout)
    }

    /// The queries that it runs, beside those that ask for them.
    fn queries(&self) -> String {
        let queries = "SELECT tier, weight, sql FROM giveway.queries";
        self.answer(queries)
            .lines()
            .skip(1)
            .collect::<Vec<_>>()
            .join("\n")
    }

    /// Waits until what it runs is so.
    fn until(&self, mut is_so: impl FnMut(&str) -> bool) -> String {
        let began = Instant::now();
        loop {
            let queries = self.queries();
            if is_so(&queries) {
                return queries;
            }
            assert!(began.elapsed() < Duration::from_secs(20), "{queries}");
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// Waits until its queries are planned for so many workers: on a busy machine one may
    /// have been too late to be greeted.
    fn until_spread_to(&self, workers: usize) {
        let began = Instant::now();
        let explain = format!("EXPLAIN {SUM}");
        loop {
            let plan = self.answer(&explain);
            if plan.contains(&format!("tasks={workers}")) {
                return;
            }
            assert!(began.elapsed() < Duration::from_secs(20), "{plan}");
            thread::sleep(Duration::from_millis(100));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn said(child: &mut Child) -> String {
    let mut said = String::new();
    if let Some(mut stderr) = child.stderr.take() {
        let _ = stderr.read_to_string(&mut said);
    }
    said
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn error(output: &Output) -> String {
    text(&output.stderr)
}

/// A coordinator and its workers. Every file is large to them.
struct Cluster {
    workers: Vec<Server>,
    coordinator: Server,
}

impl Cluster {
    fn start(machines: usize) -> Cluster {
        Cluster::on(data(), machines, |_| {})
    }

    /// Waits until queries are planned for all workers.
    fn until_whole(&self) {
        self.coordinator.until_spread_to(self.workers.len());
    }

    fn on(data: &str, machines: usize, change: impl Fn(&mut Command)) -> Cluster {
        let started = (0..machines).map(|_| {
            let mut worker = giveway(&["worker", "--listen", "127.0.0.1:0", "--workers", "1"]);
            change(&mut worker);
            Server::start(&mut worker)
        });
        let workers: Vec<Server> = started.collect();
        let coordinator = coordinator(data, &workers, change);
        Cluster {
            workers,
            coordinator,
        }
    }
}

fn coordinator(data: &str, workers: &[Server], change: impl Fn(&mut Command)) -> Server {
    let mut places = "1".to_owned();
    for worker in workers {
        places = format!("{places},{}", worker.address);
    }
    let mut serve = giveway(&["serve", "--listen", "127.0.0.1:0", "--data", data]);
    serve.args(["--part-size", "1K", "--workers", &places]);
    change(&mut serve);
    Server::start(&mut serve)
}

fn sorted(csv: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = csv.lines().collect();
    lines.sort_unstable();
    lines
}

#[test]
fn tpch_answers_are_those_of_one_machine() {
    let cluster = Cluster::start(3);
    cluster.until_whole();
    let plan = cluster.coordinator.answer(&format!("EXPLAIN {SUM}"));
    assert!(plan.contains("Stage 1 ── tasks=3"), "{plan}");
    // All of them in one script: a program for each query would take longer than the queries.
    let mut script = Vec::new();
    for number in 1..=22 {
        let query = giveway(&["tpch", "--sf", SCALE, "--query", &number.to_string()]).output();
        script.push(format!("SELECT 'Q{number}' AS query"));
        script.push(text(&query.unwrap().stdout));
    }
    let mut one = giveway(&["--data", data(), "--workers", "2", "--format", "csv"]);
    for statement in &script {
        one.args(["-c", statement]);
    }
    let one = one.output().unwrap();
    let statements: Vec<&str> = script.iter().map(String::as_str).collect();
    let many = cluster.coordinator.ask(&statements);
    for output in [&one, &many] {
        assert!(output.status.success(), "{}", error(output));
    }
    let (one, many) = (text(&one.stdout), text(&many.stdout));
    let answers = std::iter::zip(one.split("query\n").skip(1), many.split("query\n").skip(1));
    let compared = answers.inspect(|(one, many)| assert_eq!(sorted(many), sorted(one)));
    assert_eq!(compared.count(), 22);
    for worker in &cluster.workers {
        worker.until(str::is_empty);
    }
}

#[test]
fn tier_and_weight_travel_and_a_client_that_leaves_frees_the_workers() {
    let cluster = Cluster::start(2);
    cluster.until_whole();
    let settings = [
        "SET giveway.tier = 'background'",
        "SET giveway.weight = 300",
    ];
    let mut client = cluster
        .coordinator
        .asking(&[settings[0], settings[1], ENDLESS])
        .spawn()
        .unwrap();
    for worker in &cluster.workers {
        let part = worker.until(|queries| queries.contains("SELECT count(*) FROM lineitem a"));
        assert!(part.starts_with("background,300,"), "{part}");
        assert!(part.contains("[stage "), "{part}");
    }
    client.kill().unwrap();
    client.wait().unwrap();
    for server in cluster.workers.iter().chain([&cluster.coordinator]) {
        server.until(str::is_empty);
    }
}

#[test]
fn a_deadline_ends_parts_on_workers_even_if_the_coordinator_is_silent() {
    let cluster = Cluster::start(2);
    cluster.until_whole();
    let client = cluster
        .coordinator
        .asking(&["SET giveway.deadline = 3000", ENDLESS])
        .spawn()
        .unwrap();
    // The last stage, which is endless: those below it end soon, with or without a deadline.
    for worker in &cluster.workers {
        worker.until(|queries| queries.contains("[stage 3, "));
    }
    cluster.coordinator.signal(Signal::SIGSTOP);
    let began = Instant::now();
    for worker in &cluster.workers {
        worker.until(str::is_empty);
    }
    // Connections are closed after 20 s of silence.
    assert!(
        began.elapsed() < Duration::from_secs(8),
        "{:?}",
        began.elapsed()
    );
    cluster.coordinator.signal(Signal::SIGCONT);
    let output = client.wait_with_output().unwrap();
    assert!(error(&output).contains("deadline"), "{}", error(&output));
}

/// What a query says when a worker goes this way, how soon, and what the next one says.
fn going(signal: Signal) -> (Cluster, String) {
    let cluster = Cluster::start(3);
    cluster.until_whole();
    let mut client = cluster.coordinator.asking(&[ENDLESS]).spawn().unwrap();
    for worker in &cluster.workers {
        worker.until(|queries| {
            let ended = client.try_wait().unwrap();
            assert!(ended.is_none(), "it has ended: {}", said(&mut client));
            queries.contains("[stage 3, ")
        });
    }
    let began = Instant::now();
    cluster.workers[1].signal(signal);
    let output = client.wait_with_output().unwrap();
    let took = began.elapsed();
    let said = error(&output);
    assert!(said.contains(&cluster.workers[1].address), "{said}");
    assert!(said.contains("does not answer"), "{said}");
    assert!(took < TOLD, "after {took:?}: {said}");
    let sum = cluster.coordinator.answer(SUM);
    assert!(sum.starts_with("sum\n15"), "{sum}");
    let plan = cluster.coordinator.answer(&format!("EXPLAIN {SUM}"));
    assert!(plan.contains("tasks=2"), "{plan}");
    (cluster, sum)
}

#[test]
fn a_killed_worker_fails_its_query_by_name_and_the_next_query_runs() {
    going(Signal::SIGKILL);
}

#[test]
fn a_silent_worker_fails_its_query_by_name_and_comes_back_when_it_answers() {
    let (cluster, sum) = going(Signal::SIGSTOP);
    cluster.workers[1].signal(Signal::SIGCONT);
    cluster.until_whole();
    assert_eq!(cluster.coordinator.answer(SUM), sum);
}

#[test]
fn a_query_without_workers_says_why_there_are_none() {
    // A server that is no worker, and nobody at all.
    let server = Server::start(&mut giveway(&[
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--data",
        data(),
    ]));
    let places = format!("127.0.0.1:1,{}", server.address);
    let mut serve = giveway(&["serve", "--listen", "127.0.0.1:0", "--data", data()]);
    serve.args(["--part-size", "1K", "--workers", &places]);
    let coordinator = Server::start(&mut serve);
    let output = coordinator.ask(&[SUM]);
    let said = error(&output);
    assert!(said.contains("127.0.0.1:1: it does not answer"), "{said}");
    assert!(said.contains("giveway sql worker"), "{said}");
    // What needs no worker runs.
    assert_eq!(coordinator.answer("SELECT 1 AS one"), "one\n1\n");
}

#[test]
fn workers_ask_for_the_password_of_the_cluster() {
    let with = |password: &'static str| {
        move |command: &mut Command| {
            command.env("GIVEWAY_SQL_PASSWORD", password);
        }
    };
    let cluster = Cluster::on(data(), 2, with("secret"));
    let count = |server: &Server, password: &str| {
        let mut asking = server.asking(&[
            "SELECT count(*) AS n FROM nation n JOIN lineitem l ON n.n_nationkey = l.l_linenumber",
        ]);
        asking
            .env("GIVEWAY_SQL_PASSWORD", password)
            .output()
            .unwrap()
    };
    let answer = count(&cluster.coordinator, "secret");
    assert!(answer.status.success(), "{}", error(&answer));
    let other = coordinator(data(), &cluster.workers, with("wrong"));
    let refused = error(&count(&other, "wrong"));
    assert!(refused.contains("wrong user or password"), "{refused}");
}

#[test]
fn files_that_cannot_be_cut_are_read_whole() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let mut rows = "a,b\n".to_owned();
    for row in 0..3000 {
        rows += &format!("{},\"{}\"\n", 10_000_000 + row, "7,evil\n".repeat(30));
    }
    fs::write(path("nl.csv"), rows).unwrap();
    let lines = (0..3000).map(|row| format!("{{\"a\": {}}}\n", 10_000_000 + row));
    fs::write(path("lines.json"), lines.collect::<String>()).unwrap();
    for (name, options) in [
        (
            "packed.csv.gz",
            "STORED AS CSV OPTIONS ('format.compression' 'gzip')",
        ),
        (
            "packed2.json.gz",
            "STORED AS JSON OPTIONS ('format.compression' 'gzip')",
        ),
    ] {
        let copy = format!("COPY (SELECT a FROM nl) TO '{}' {options}", path(name));
        let made = giveway(&["--data", dir.path().to_str().unwrap(), "-c", &copy]).output();
        let made = made.unwrap();
        assert!(made.status.success(), "{}", error(&made));
    }
    let cluster = Cluster::on(dir.path().to_str().unwrap(), 2, |_| {});
    let explain = "EXPLAIN SELECT a / 10000000, count(*) FROM lines GROUP BY 1";
    let began = Instant::now();
    while !cluster.coordinator.answer(explain).contains("tasks=2") {
        assert!(began.elapsed() < Duration::from_secs(20));
        thread::sleep(Duration::from_millis(100));
    }
    for table in ["nl", "packed", "packed2", "lines"] {
        let sql = format!(
            "SELECT CAST(a AS BIGINT) / 10000000 AS k, count(*) AS n FROM {table} GROUP BY 1"
        );
        assert_eq!(cluster.coordinator.answer(&sql), "k,n\n1,3000\n", "{table}");
    }
}

#[test]
fn expressions_of_any_depth_have_an_answer() {
    let cluster = Cluster::start(2);
    cluster.until_whole();
    for depth in [2, 30] {
        let inside = " % 100 + 1 - 1".repeat(depth);
        let sql = format!(
            "SELECT l_linenumber % 2 AS k, max(l_linenumber{inside}) AS m FROM lineitem \
             GROUP BY 1 ORDER BY 1"
        );
        let answer = cluster.coordinator.answer(&sql);
        assert_eq!(answer, "k,m\n0,6\n1,7\n", "{depth}");
    }
}

#[test]
fn tables_in_memory_stay_with_the_coordinator() {
    let cluster = Cluster::start(2);
    // With a table of files that is large enough for both workers.
    let statements = [
        "CREATE TABLE few AS SELECT * FROM nation WHERE n_nationkey < 5",
        "SELECT count(*) AS n FROM lineitem JOIN few ON l_linenumber = n_nationkey \
         UNION ALL SELECT count(*) FROM lineitem WHERE l_linenumber BETWEEN 1 AND 4",
    ];
    let output = cluster.coordinator.ask(&statements);
    let said = text(&output.stdout);
    let counts: Vec<&str> = said.lines().skip(1).collect();
    assert!(
        counts.len() == 2 && counts[0] == counts[1] && counts[0] != "0",
        "{said}{}",
        error(&output)
    );
}

#[test]
fn one_command_starts_a_cluster_and_ends_it() {
    let mut command = giveway(&["cluster", "--listen", "127.0.0.1:0", "--data", data()]);
    command.args(["--part-size", "1K", "--workers", "1"]);
    let mut server = Server::start(&mut command);
    let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", server.child.id()));
    let children: Vec<String> = children
        .unwrap()
        .split_whitespace()
        .map(str::to_owned)
        .collect();
    assert_eq!(children.len(), 3);
    server.until_spread_to(3);
    // However it ends.
    server.child.kill().unwrap();
    server.child.wait().unwrap();
    let began = Instant::now();
    let lives = |child: &String| {
        fs::read_to_string(format!("/proc/{child}/cmdline")).is_ok_and(|line| !line.is_empty())
    };
    while children.iter().any(lives) {
        assert!(
            began.elapsed() < Duration::from_secs(20),
            "{children:?} go on"
        );
        thread::sleep(Duration::from_millis(50));
    }
}

/// A store with the interface of S3 over a directory; its address.
fn store(root: &Path) -> String {
    use hyper_util::rt::{TokioExecutor, TokioIo};
    let (sender, address) = std::sync::mpsc::channel();
    let root = root.to_owned();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        runtime.unwrap().block_on(async {
            let mut service =
                s3s::service::S3ServiceBuilder::new(s3s_fs::FileSystem::new(root).unwrap());
            service.set_auth(s3s::auth::SimpleAuth::from_single("key", "secret"));
            let service = service.build();
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            sender.send(listener.local_addr().unwrap()).unwrap();
            loop {
                let (socket, _) = listener.accept().await.unwrap();
                let service = service.clone();
                tokio::spawn(async move {
                    let server = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
                    let _ = server.serve_connection(TokioIo::new(socket), service).await;
                });
            }
        });
    });
    format!("http://{}", address.recv().unwrap())
}

#[test]
fn data_can_be_in_a_store_that_all_machines_reach() {
    let root = tempfile::tempdir().unwrap();
    let bucket = root.path().join("shop/tpch");
    let copied = Command::new("cp")
        .args(["-r", "-T", data()])
        .arg({
            fs::create_dir_all(&bucket).unwrap();
            &bucket
        })
        .status();
    assert!(copied.unwrap().success());
    let endpoint = store(root.path());
    let with_store = |command: &mut Command| {
        command
            .env("AWS_ENDPOINT_URL", &endpoint)
            .env("AWS_ACCESS_KEY_ID", "key")
            .env("AWS_SECRET_ACCESS_KEY", "secret")
            .env("AWS_REGION", "us-east-1");
    };
    let cluster = Cluster::on("s3://shop/tpch", 2, with_store);
    let sql = "SELECT n_name, sum(s_acctbal) AS s FROM supplier JOIN nation ON s_nationkey = \
               n_nationkey GROUP BY n_name ORDER BY n_name";
    let expected = giveway(&["--data", data(), "--format", "csv", "-c", sql])
        .output()
        .unwrap();
    assert_eq!(cluster.coordinator.answer(sql), text(&expected.stdout));
    let plan = cluster.coordinator.answer(&format!("EXPLAIN {sql}"));
    assert!(plan.contains("tasks=2"), "{plan}");
    // One table by its address, and what is not there.
    let shell = |table: &str| {
        let mut shell = giveway(&["--table", table, "--format", "csv"]);
        shell.args(["-c", "SELECT count(*) AS n FROM t"]);
        with_store(&mut shell);
        shell.output().unwrap()
    };
    let count = shell("t=s3://shop/tpch/region");
    assert_eq!(text(&count.stdout), "n\n5\n", "{}", error(&count));
    let missing = error(&shell("t=s3://shop/none"));
    assert!(missing.contains("s3://shop/none"), "{missing}");
}

/// What containers of the manifests are started with.
fn commands() -> Vec<Vec<String>> {
    fn find(value: &Value, found: &mut Vec<Vec<String>>) {
        match value {
            Value::Object(fields) => {
                let args = ["args", "command"]
                    .iter()
                    .filter_map(|key| fields.get(*key));
                found.extend(args.filter_map(|args| serde_json::from_value(args.clone()).ok()));
                fields.values().for_each(|value| find(value, found));
            }
            Value::Array(values) => values.iter().for_each(|value| find(value, found)),
            _ => {}
        }
    }
    let dist = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dist/sql");
    let mut found = Vec::new();
    for name in ["compose.yaml", "kubernetes.yaml"] {
        let text = fs::read_to_string(dist.join(name)).unwrap();
        for document in serde_yaml_ng::Deserializer::from_str(&text) {
            find(&Value::deserialize(document).unwrap(), &mut found);
        }
    }
    found
}

#[test]
fn manifests_start_programs_with_options_that_they_have() {
    let commands = commands();
    // Of compose the worker's is in its template, too, and below the server.
    let is = |name: &str| commands.iter().filter(|args| args[0] == name).count();
    assert_eq!((is("worker"), is("serve")), (6, 2), "{commands:?}");
    for args in &commands {
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let output = giveway(&args).arg("--help").output().unwrap();
        assert!(output.status.success(), "{args:?}: {}", error(&output));
        // What is wrong with an option is said before any help.
        let wrong = giveway(&args)
            .args(["--no-such", "--help"])
            .output()
            .unwrap();
        assert!(!wrong.status.success(), "{args:?}");
    }
}
