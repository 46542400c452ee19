//! A runtime that the test plays: gRPC over a socket, as containerd serves it. Its
//! messages are written out by hand, so that the numbers of their fields are not
//! taken from the code under test.

use std::convert::Infallible;
use std::future::ready;
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::stream;
use giveway_pods::{Error, Runtime};
use tokio::net::UnixListener;
use tonic::body::Body;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::codegen::{Service, http};
use tonic::server::{Grpc, NamedService, UnaryService};
use tonic::{Request, Response, Status};

/// A field of bytes: its number, and what is in it.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let length = u8::try_from(bytes.len()).unwrap();
    assert!(length < 128, "one byte of length");
    [&[(number << 3) | 2, length], bytes].concat()
}

/// A `ListPodSandboxRequest` for the pods that are ready, by a filter whose one
/// field is a value of 0, which is not written.
fn expected() -> Vec<u8> {
    field(1, &field(2, &[]))
}

/// A `ListPodSandboxResponse` of one pod.
fn answer() -> Vec<u8> {
    let metadata = [
        field(1, b"reports-7"),
        field(2, b"uid-1"),
        field(3, b"shop"),
        vec![4 << 3, 2],
    ];
    let annotation = [field(1, b"giveway/tier"), field(2, b"background")].concat();
    let label = [field(1, b"app"), field(2, b"reports")].concat();
    let pod = [
        field(1, b"id-1"),
        field(2, &metadata.concat()),
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

/// Answers the one call, if it asks what is expected.
#[derive(Clone)]
struct Played;

impl UnaryService<Vec<u8>> for Played {
    type Response = Vec<u8>;
    type Future = std::future::Ready<Result<Response<Vec<u8>>, Status>>;

    fn call(&mut self, request: Request<Vec<u8>>) -> Self::Future {
        let asked = request.into_inner();
        ready(match asked == expected() {
            true => Ok(Response::new(answer())),
            false => Err(Status::invalid_argument(format!("{asked:?}"))),
        })
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
        Box::pin(async move {
            match request.uri().path() {
                "/runtime.v1.RuntimeService/ListPodSandbox" => {
                    Ok(Grpc::new(Raw).unary(Played, request).await)
                }
                other => Ok(Status::unimplemented(other).into_http()),
            }
        })
    }
}

/// Serves [`Played`] at `path` until the test ends.
fn play(path: &Path) {
    let listener = UnixListener::bind(path).unwrap();
    let incoming = stream::unfold(listener, |listener| async {
        let accepted = listener.accept().await.map(|(stream, _)| stream);
        Some((accepted, listener))
    });
    let server = tonic::transport::Server::builder().add_service(Played);
    tokio::spawn(server.serve_with_incoming(incoming));
}

#[tokio::test]
async fn running_pods_come_with_their_annotations() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("runtime.sock");
    play(&socket);
    let runtime = Runtime::at(&format!("unix://{}", socket.display())).unwrap();
    let pods = runtime.pods().await.unwrap();
    assert_eq!(pods.len(), 1);
    assert_eq!(pods[0].uid, "uid-1");
    assert_eq!(pods[0].name, "reports-7");
    assert_eq!(pods[0].namespace, "shop");
    let annotations: Vec<_> = pods[0].annotations.iter().collect();
    let expected = ("giveway/tier".to_owned(), "background".to_owned());
    assert_eq!(annotations, [(&expected.0, &expected.1)]);
}

#[tokio::test]
async fn a_runtime_that_comes_later_is_found_then() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("runtime.sock");
    let runtime = Runtime::at(&format!("unix://{}", socket.display())).unwrap();
    let error = runtime.pods().await.unwrap_err();
    assert!(matches!(error, Error::Silent(_)), "{error}");
    play(&socket);
    assert_eq!(runtime.pods().await.unwrap().len(), 1);
}

#[tokio::test]
async fn an_address_is_a_socket_s() {
    for wrong in ["", "/run/x.sock", "http://127.0.0.1:1", "unix://x"] {
        let error = Runtime::at(wrong).unwrap_err().to_string();
        assert!(error.contains("unix:///PATH"), "{wrong}: {error}");
    }
}
