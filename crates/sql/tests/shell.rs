//! The shell, line by line, on an engine in the same process and on a server.

use std::future::pending;
use std::io;
use std::time::Duration;

use giveway_sql::Engine;
use giveway_sql::server::Server;
use giveway_sql::shell::{Flow, Format, Interrupt, Screen, Shell, ShellError};

/// Keeps what is written, and may have had enough of it.
#[derive(Default)]
struct Paper {
    out: String,
    notes: Vec<String>,
    /// What to fire when progress is told: a query is running.
    on_progress: Option<Interrupt>,
    /// What to fire when something is written on a second page.
    on_second_page: Option<Interrupt>,
}

impl Screen for Paper {
    fn write(&mut self, text: &[u8]) -> io::Result<()> {
        self.out.push_str(std::str::from_utf8(text).unwrap());
        if let Some(interrupt) = &self.on_second_page
            && self.out.matches("<clear>").count() == 2
        {
            interrupt.fire();
        }
        Ok(())
    }

    fn note(&mut self, text: &str) {
        self.notes.push(text.to_owned());
    }

    fn progress(&mut self, progress: Option<(Option<f64>, Duration)>) {
        if let (Some(_), Some(interrupt)) = (progress, &self.on_progress) {
            interrupt.fire();
        }
    }

    fn clear(&mut self) -> io::Result<()> {
        self.out.push_str("<clear>");
        Ok(())
    }
}

fn shell() -> Shell {
    let engine = Engine::builder().workers(2).build().unwrap();
    Shell::local(engine.session()).unwrap().format(Format::Csv)
}

/// What a shell writes for these lines.
async fn said(shell: &mut Shell, lines: &[&str]) -> Result<String, ShellError> {
    let mut paper = Paper::default();
    for line in lines {
        assert_eq!(shell.line(line, &mut paper).await?, Flow::Continue);
    }
    shell.finish(&mut paper).await?;
    Ok(paper.out)
}

/// The same conversation with both backends.
async fn converse(mut shell: Shell) {
    let say = async |shell: &mut Shell, lines: &[&str]| said(shell, lines).await.unwrap();
    assert_eq!(
        say(&mut shell, &["select 1 as a; select", "2 as b"]).await,
        "a\n1\nb\n2\n"
    );
    assert_eq!(say(&mut shell, &["\\tier background"]).await, "");
    assert_eq!(
        say(&mut shell, &["\\tier"]).await,
        "name,value\ngiveway.tier,background\n"
    );
    assert_eq!(
        say(&mut shell, &["create table few as values (1), (2);"]).await,
        ""
    );
    assert!(
        say(&mut shell, &["\\d"])
            .await
            .contains("public,few,BASE TABLE\n")
    );
    assert!(
        say(&mut shell, &["\\d few"])
            .await
            .contains("column1,Int64,")
    );
    assert_eq!(
        say(
            &mut shell,
            &["\\format json", "select column1 as a from few order by 1;"]
        )
        .await,
        "[\n  {\"a\":1},\n  {\"a\":2}\n]\n"
    );
    assert_eq!(
        say(&mut shell, &["select 1 as a where false;"]).await,
        "[]\n"
    );
    assert!(say(&mut shell, &["\\?"]).await.contains("\\cancel ID"));
    let shown = say(&mut shell, &["\\format csv", "\\queries"]).await;
    assert!(shown.starts_with("id,tier,weight,state"), "{shown}");
    assert!(say(&mut shell, &["\\cancel 9999"]).await.contains("false"));

    for (line, expected) in [
        ("selekt;", "selekt"),
        ("\\weight 0", "1 to 10000"),
        ("\\format xml", "ndjson"),
        ("\\nonsense", "\\? lists them"),
    ] {
        let error = said(&mut shell, &[line]).await.unwrap_err().to_string();
        assert!(error.contains(expected), "{line}: {error}");
    }
    assert_eq!(say(&mut shell, &["select 3 as c;"]).await, "c\n3\n");
    let mut paper = Paper::default();
    assert_eq!(shell.line("\\q", &mut paper).await.unwrap(), Flow::Quit);
}

#[tokio::test]
async fn a_conversation_with_an_engine() {
    converse(shell()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_conversation_with_a_server() {
    let engine = Engine::builder().workers(2).build().unwrap();
    let server = Server::builder(engine.session());
    let server = server.bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let url = format!("grpc://{}", server.address());
    tokio::spawn(server.serve(pending(), Duration::ZERO));
    let shell = Shell::connect(&url, "ann", "").await.unwrap();
    converse(shell.format(Format::Csv)).await;
}

#[tokio::test]
async fn a_missing_server_is_reported_with_how_to_start_one() {
    let error = Shell::connect("grpc://127.0.0.1:1", "ann", "").await;
    let error = error.err().unwrap().to_string();
    assert!(error.contains("giveway sql serve"), "{error}");
    let error = Shell::connect("ftp://127.0.0.1:1", "ann", "").await;
    assert!(error.err().unwrap().to_string().contains("grpc://"));
    for url in ["grpc://127.0.0.1", "grpc://[::1]", "db1"] {
        let error = Shell::connect(url, "ann", "").await;
        let error = error.err().unwrap().to_string();
        assert!(error.contains("no port: write grpc://HOST:PORT"), "{error}");
    }
}

#[tokio::test]
async fn an_interrupt_ends_the_statement_and_not_the_shell() {
    let mut shell = shell();
    let interrupt = shell.interrupt();
    // Nothing runs: nothing is remembered.
    interrupt.fire();
    let long = "select count(*) from generate_series(1, 100000) a, \
                generate_series(1, 100000) b, generate_series(1, 100000) c \
                where a.value + b.value + c.value = -1;";
    let mut paper = Paper {
        on_progress: Some(interrupt),
        ..Paper::default()
    };
    let ended = shell.line(long, &mut paper).await;
    assert!(matches!(ended, Err(ShellError::Interrupted)));
    assert_eq!(
        said(&mut shell, &["select 1 as a;"]).await.unwrap(),
        "a\n1\n"
    );
}

#[tokio::test]
async fn a_live_view_goes_on_until_interrupted() {
    let mut shell = shell();
    let mut paper = Paper {
        on_second_page: Some(shell.interrupt()),
        ..Paper::default()
    };
    let ended = shell.line("\\queries 0.1", &mut paper).await;
    assert_eq!(ended.unwrap(), Flow::Continue);
    assert_eq!(paper.out.matches("<clear>").count(), 2, "{}", paper.out);
}

#[tokio::test]
async fn timing_is_said_beside_the_rows() {
    let mut shell = shell().timing(true);
    let mut paper = Paper::default();
    shell.line("select 1 as a;", &mut paper).await.unwrap();
    assert_eq!(paper.out, "a\n1\n");
    assert!(paper.notes[0].starts_with("time: "), "{:?}", paper.notes);
}
