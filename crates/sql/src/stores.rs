//! Where files are: on this machine, or in a store with the interface of S3.
//!
//! A bucket becomes a store when it is first asked for, with what the environment says
//! (`AWS_ENDPOINT_URL`, `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, `AWS_REGION` and the
//! others that the command line of AWS knows). So all machines of a cluster have the same
//! stores, if they have the same environment.
//!
//! Requests are made on the readers' thread (`side_thread`), whoever waits for them:
//! connections belong to the runtime that has opened them, and planners and workers come
//! and go.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use datafusion::common::{DataFusionError, Result};
use datafusion::execution::object_store::{DefaultObjectStoreRegistry, ObjectStoreRegistry};
use object_store::aws::AmazonS3Builder;
use object_store::client::SpawnedReqwestConnector;
use object_store::{ObjectStore, RetryConfig};
use url::Url;

use crate::side_thread::SideThread;

/// How URLs of such stores begin.
pub(crate) const S3: &str = "s3://";
/// For how long a store may be out of reach before a query is told.
const RETRY_MAX: Duration = Duration::from_secs(20);

/// The stores of an engine.
pub(crate) struct Stores {
    known: DefaultObjectStoreRegistry,
    readers: Arc<SideThread>,
}

impl Stores {
    /// This machine's files; buckets come when they are asked for.
    pub(crate) fn new(readers: &Arc<SideThread>) -> Stores {
        Stores {
            known: DefaultObjectStoreRegistry::new(),
            readers: Arc::clone(readers),
        }
    }

    fn bucket(&self, url: &Url) -> Result<Arc<dyn ObjectStore>> {
        let name = url.host_str().unwrap_or_default();
        let endpoint = ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"];
        let endpoint = endpoint.iter().find_map(|name| std::env::var(name).ok());
        // Whoever writes such an address wants no encryption.
        let is_plain = (endpoint.as_ref()).is_some_and(|endpoint| endpoint.starts_with("http://"));
        let mut builder = AmazonS3Builder::from_env()
            .with_bucket_name(name)
            .with_retry(RetryConfig {
                retry_timeout: RETRY_MAX,
                ..RetryConfig::default()
            })
            .with_http_connector(SpawnedReqwestConnector::new(self.readers.handle()));
        if let Some(endpoint) = endpoint {
            builder = builder.with_endpoint(endpoint);
        }
        if is_plain {
            builder = builder.with_allow_http(true);
        }
        let store = builder.build().map_err(|error| {
            DataFusionError::Configuration(format!(
                "the store of {url}: {error}; set AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, \
                 AWS_REGION, and AWS_ENDPOINT_URL if it is not Amazon's"
            ))
        })?;
        Ok(Arc::new(store))
    }
}

impl ObjectStoreRegistry for Stores {
    fn register_store(
        &self,
        url: &Url,
        store: Arc<dyn ObjectStore>,
    ) -> Option<Arc<dyn ObjectStore>> {
        self.known.register_store(url, store)
    }

    fn get_store(&self, url: &Url) -> Result<Arc<dyn ObjectStore>> {
        match self.known.get_store(url) {
            Err(_) if url.as_str().starts_with(S3) => {
                let store = self.bucket(url)?;
                self.known.register_store(url, Arc::clone(&store));
                Ok(store)
            }
            known => known,
        }
    }
}

impl fmt::Debug for Stores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stores").finish_non_exhaustive()
    }
}
