//! A runtime that the test plays: gRPC over a socket, as containerd serves it, by an
//! implementation that is not ours. Its messages are written out by hand, so that the
//! numbers of their fields are not taken from the code under test.

use std::convert::Infallible;
use std::fs;
use std::future::{pending, ready};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::stream;
use giveway_pods::{Error, Runtime, Unanswered};
use tokio::net::UnixListener;
use tonic::body::Body;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::codegen::{Service, http};
use tonic::server::{Grpc, NamedService, UnaryService};
use tonic::{Request, Response, Status};

/// A field of bytes: its number, their length, and they.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut field = vec![(number << 3) | 2];
    let mut length = bytes.len();
    // Seven bits at a time, the lowest first; all but the last have the top bit set.
    while length >= 128 {
        field.push(length as u8 | 128);
        length >>= 7;
    }
    field.push(length as u8);
    field.extend_from_slice(bytes);
    field
}

/// A `ListPodSandboxResponse` of one pod that is ready, annotated with this.
fn answer(annotation: &str) -> Vec<u8> {
    sandbox(0, 1, annotation)
}

/// One of a pod's sandbox with the number of its state, made at that time.
fn sandbox(state: u8, created_at: u8, annotation: &str) -> Vec<u8> {
    let metadata = [
        field(1, b"reports-7"),
        field(2, b"uid-1"),
        field(3, b"shop"),
        vec![4 << 3, 2],
    ];
    let annotation = [field(1, b"giveway/tier"), field(2, annotation.as_bytes())].concat();
    let label = [field(1, b"app"), field(2, b"reports")].concat();
    let pod = [
        field(1, b"id-1"),
        field(2, &metadata.concat()),
        vec![3 << 3, state],
        vec![4 << 3, created_at],
        field(5, &label),
        field(6, &annotation),
    ];
    field(1, &pod.concat())
}

/// Messages as they are.
#[derive(Default)]
struct Raw;

impl Codec for Raw {
    type Encode = Vec<u8>;
    type Decode = Vec<u8>;
    type Encoder = Raw;
    type Decoder = Raw;

    fn encoder(&mut self) -> Raw {
        Raw
    }

    fn decoder(&mut self) -> Raw {
        Raw
    }
}

impl Encoder for Raw {
    type Item = Vec<u8>;
    type Error = Status;

    fn encode(&mut self, item: Vec<u8>, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        prost::bytes::BufMut::put_slice(to, &item);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Vec<u8>;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Vec<u8>>, Status> {
        let length = prost::bytes::Buf::remaining(from);
        let bytes = prost::bytes::Buf::copy_to_bytes(from, length);
        Ok(Some(bytes.to_vec()))
    }
}

/// What is answered to a question.
type Reply = dyn Fn() -> Result<Vec<u8>, Status> + Send + Sync;
type Answering = Pin<Box<dyn Future<Output = Result<Response<Vec<u8>>, Status>> + Send>>;

/// Answers the one call, if it asks what is expected and as gRPC wants it.
#[derive(Clone)]
struct Played {
    /// None: it never answers.
    reply: Option<Arc<Reply>>,
}

impl UnaryService<Vec<u8>> for Played {
    type Response = Vec<u8>;
    type Future = Answering;

    fn call(&mut self, request: Request<Vec<u8>>) -> Self::Future {
        let headers = request.metadata();
        let said = |name: &str| {
            let value = headers.get(name).map(|value| value.as_bytes());
            String::from_utf8_lossy(value.unwrap_or_default()).into_owned()
        };
        let (te, timeout) = (said("te"), said("grpc-timeout"));
        let left = timeout.strip_suffix('m').and_then(|ms| ms.parse().ok());
        let in_time = left.is_some_and(|ms: u32| (1..=5000).contains(&ms));
        let asked = request.into_inner();
        // No filter: of all pods.
        if te != "trailers" || !in_time || !asked.is_empty() {
            let what = format!("te: {te}, grpc-timeout: {timeout}, {asked:?}");
            return Box::pin(ready(Err(Status::invalid_argument(what))));
        }
        match &self.reply {
            Some(reply) => Box::pin(ready(reply().map(Response::new))),
            None => Box::pin(pending()),
        }
    }
}

impl NamedService for Played {
    const NAME: &'static str = "runtime.v1.RuntimeService";
}

impl Service<http::Request<Body>> for Played {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let played = self.clone();
        Box::pin(async move {
            match request.uri().path() {
                "/runtime.v1.RuntimeService/ListPodSandbox" => {
                    Ok(Grpc::new(Raw).unary(played, request).await)
                }
                other => Ok(Status::unimplemented(other).into_http()),
            }
        })
    }
}

/// One that serves another version of the interface.
#[derive(Clone)]
struct Older(Played);

impl NamedService for Older {
    const NAME: &'static str = "runtime.v1alpha2.RuntimeService";
}

impl Service<http::Request<Body>> for Older {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = <Played as Service<http::Request<Body>>>::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        Service::call(&mut self.0, request)
    }
}

/// A socket of its own for a runtime.
struct SocketDir {
    dir: tempfile::TempDir,
}

impl SocketDir {
    fn new() -> Self {
        SocketDir {
            dir: tempfile::tempdir().unwrap(),
        }
    }

    fn socket(&self) -> PathBuf {
        self.dir.path().join("runtime.sock")
    }

    fn runtime(&self) -> Runtime {
        Runtime::at(&format!("unix://{}", self.socket().display())).unwrap()
    }
}

/// A server with threads of its own. They and all its connections end when it is
/// dropped, as those of a process do.
struct Process(Option<tokio::runtime::Runtime>);

impl Process {
    fn serve<S>(socket: &Path, service: S) -> Self
    where
        S: Service<http::Request<Body>, Response = http::Response<Body>, Error = Infallible>
            + NamedService
            + Clone
            + Send
            + Sync
            + 'static,
        S::Future: Send + 'static,
    {
        let threads = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let listener = {
            let _entered = threads.enter();
            UnixListener::bind(socket).unwrap()
        };
        let incoming = stream::unfold(listener, |listener| async {
            let accepted = listener.accept().await.map(|(stream, _)| stream);
            Some((accepted, listener))
        });
        let server = tonic::transport::Server::builder().add_service(service);
        threads.spawn(server.serve_with_incoming(incoming));
        Process(Some(threads))
    }

    fn start(
        socket: &Path,
        reply: impl Fn() -> Result<Vec<u8>, Status> + Send + Sync + 'static,
    ) -> Self {
        let reply: Arc<Reply> = Arc::new(reply);
        Process::serve(socket, Played { reply: Some(reply) })
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // May be called by a test's own runtime, which must not be kept waiting.
        self.0.take().unwrap().shutdown_background();
    }
}

/// The error of a question that has no answer.
async fn unanswered(runtime: &Runtime) -> Unanswered {
    match runtime.pods().await {
        Err(Error::Silent(why)) => why,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn running_pods_come_with_their_annotations() {
    let place = SocketDir::new();
    let _runtime = Process::start(&place.socket(), || Ok(answer("background")));
    let pods = place.runtime().pods().await.unwrap();
    assert_eq!(pods.len(), 1);
    assert_eq!(pods[0].uid, "uid-1");
    assert_eq!(pods[0].name, "reports-7");
    assert_eq!(pods[0].namespace, "shop");
    let annotations: Vec<_> = pods[0].annotations.iter().collect();
    let expected = ("giveway/tier".to_owned(), "background".to_owned());
    assert_eq!(annotations, [(&expected.0, &expected.1)]);
}

#[tokio::test]
async fn pod_keeps_its_annotations_when_its_sandbox_ends() {
    let place = SocketDir::new();
    let _runtime = Process::start(&place.socket(), || Ok(sandbox(1, 1, "background")));
    let pods = place.runtime().pods().await.unwrap();
    assert_eq!(pods[0].annotations["giveway/tier"], "background");
}

#[tokio::test]
async fn youngest_sandbox_of_a_pod_counts() {
    let sandboxes = [sandbox(1, 7, "time_sensitive"), sandbox(0, 8, "background")];
    let reversed = [sandboxes[1].clone(), sandboxes[0].clone()];
    for sandboxes in [sandboxes, reversed] {
        let place = SocketDir::new();
        let _runtime = Process::start(&place.socket(), move || Ok(sandboxes.concat()));
        let pods = place.runtime().pods().await.unwrap();
        assert_eq!(pods.len(), 1);
        assert_eq!(pods[0].annotations["giveway/tier"], "background");
    }
}

#[tokio::test]
async fn runtime_that_comes_later_is_found_then() {
    let place = SocketDir::new();
    let runtime = place.runtime();
    let why = unanswered(&runtime).await;
    assert!(matches!(why, Unanswered::NotThere { .. }), "{why}");
    let _runtime = Process::start(&place.socket(), || Ok(answer("background")));
    assert_eq!(runtime.pods().await.unwrap().len(), 1);
}

#[tokio::test]
async fn runtime_that_restarts_between_two_questions_is_asked_anew() {
    let place = SocketDir::new();
    let runtime = place.runtime();
    let tier = async || {
        let pods = runtime.pods().await.unwrap();
        pods[0].annotations["giveway/tier"].clone()
    };
    let first = Process::start(&place.socket(), || Ok(answer("background")));
    assert_eq!(tier().await, "background");
    assert_eq!(tier().await, "background");
    drop(first);
    fs::remove_file(place.socket()).unwrap();
    let _second = Process::start(&place.socket(), || Ok(answer("time_sensitive")));
    assert_eq!(tier().await, "time_sensitive");
}

#[tokio::test]
async fn runtime_that_never_answers_is_given_up() {
    let place = SocketDir::new();
    let _runtime = Process::serve(&place.socket(), Played { reply: None });
    let patience = Duration::from_millis(200);
    let runtime = place.runtime().with_patience(patience);
    // Whether we or the server, which is told, notice first.
    let why = unanswered(&runtime).await;
    assert!(
        matches!(why, Unanswered::Slow(time) if time == patience),
        "{why}"
    );
    assert!(why.to_string().contains("200ms"), "{why}");
}

#[tokio::test]
async fn reason_of_an_error_is_passed_on() {
    let place = SocketDir::new();
    let _runtime = Process::start(&place.socket(), || {
        Err(Status::unavailable("starting: 5 % done, über\nall"))
    });
    let why = unanswered(&place.runtime()).await;
    let Unanswered::Status { code, message } = &why else {
        panic!("{why}");
    };
    assert_eq!((*code, &message[..]), (14, "starting: 5 % done, über\nall"));
    assert!(why.to_string().contains("UNAVAILABLE"), "{why}");
}

#[tokio::test]
async fn runtime_of_another_version_is_told_apart() {
    let place = SocketDir::new();
    let _runtime = Process::serve(&place.socket(), Older(Played { reply: None }));
    let why = unanswered(&place.runtime()).await;
    assert!(matches!(why, Unanswered::Unimplemented(_)), "{why}");
    assert!(why.to_string().contains("disabled_plugins"), "{why}");
}

/// Far more than a connection's window, so it must be opened again and again.
#[tokio::test]
async fn long_answer_is_read_to_its_end() {
    let place = SocketDir::new();
    let text = "x".repeat(12 << 20);
    let said = answer(&text);
    let _runtime = Process::start(&place.socket(), move || Ok(said.clone()));
    let pods = place.runtime().pods().await.unwrap();
    assert!(pods[0].annotations["giveway/tier"] == text);
}

#[tokio::test]
async fn answer_beyond_the_limit_is_refused() {
    let place = SocketDir::new();
    let said = answer(&"x".repeat(16 << 20));
    let length = said.len();
    let _runtime = Process::start(&place.socket(), move || Ok(said.clone()));
    let why = unanswered(&place.runtime()).await;
    let Unanswered::TooLarge { length: told, .. } = why else {
        panic!("{why}");
    };
    assert_eq!(told, length);
}

#[tokio::test]
async fn address_is_a_socket_s() {
    for wrong in ["", "/run/x.sock", "http://127.0.0.1:1", "unix://x"] {
        let error = Runtime::at(wrong).unwrap_err().to_string();
        assert!(error.contains("unix:///PATH"), "{wrong}: {error}");
    }
}
