//! The trait behind which engines are, and the choice among them.

use std::ffi::c_void;
use std::path::PathBuf;
use std::time::Duration;

use crate::{library, shm, Collective, Error, ErrorKind, Result, Store};

/// A stream of a device, as its vendor's library takes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stream(pub *mut c_void);

/// One rank's end of a group.
pub trait Communicator: Send + Sync {
    /// The name of its engine.
    fn engine(&self) -> &'static str;

    /// The library behind it, with its version where it tells one.
    fn library(&self) -> Option<String>;

    /// Whether calls are queued on a stream and done when the stream got there. Otherwise they are done on
    /// return, and several threads may be in calls at once: one in collectives, any number in transfers.
    fn on_streams(&self) -> bool;

    /// Runs or queues a call.
    ///
    /// # Safety
    /// The buffers are valid for the call's counts until it is done; `stream` is one of the buffers' device.
    unsafe fn run(&self, call: &Collective<'_>, stream: Stream) -> Result<()>;

    /// Runs a receive without a rank; returns the rank it was from.
    ///
    /// # Safety
    /// As [`Communicator::run`].
    unsafe fn receive_any(&self, call: &Collective<'_>) -> Result<usize>;

    /// Begins calls that may be queued as one, of this thread.
    fn group_start(&self) -> Result<()>;

    /// Ends them.
    fn group_end(&self) -> Result<()>;

    /// Ends all calls of the group, here and where the engine can on the other ranks, with `reason`.
    fn abort(&self, reason: &str);

    /// A failure that happened after a call had returned.
    fn async_error(&self) -> Result<()>;

    /// What is known of the ranks, for a report.
    fn state(&self) -> serde_json::Value;
}

/// What a communicator is made of.
#[derive(Debug, Clone)]
pub struct Config {
    /// The engine's name; none lets the memory and the vendor decide.
    pub engine: Option<String>,
    /// The file of the engine's library; none searches.
    pub library: Option<PathBuf>,
    /// The vendor whose memory the buffers are: `host`, `cuda`, ...
    pub vendor: String,
    /// This rank.
    pub rank: usize,
    /// Ranks of the group.
    pub size: usize,
    /// The name of the group, for messages.
    pub group: String,
    /// How long to wait for the others to connect.
    pub timeout: Duration,
    /// Bytes of a window of the engine `shm`, a multiple of 4096.
    pub window: usize,
}

/// Every engine's name.
pub const ENGINES: [&str; 4] = ["shm", "nccl", "flagcx", "hccl"];

/// The engine for `config`, and why.
pub fn choose(config: &Config) -> Result<(&'static str, String)> {
    if let Some(asked) = config
        .engine
        .as_deref()
        .filter(|name| !matches!(*name, "" | "auto"))
    {
        let known = ENGINES.into_iter().find(|name| *name == asked);
        return known
            .map(|name| (name, "it was asked for".to_owned()))
            .ok_or_else(|| {
                let nearest = ENGINES.into_iter().max_by(|a, b| {
                    strsim::jaro_winkler(a, asked).total_cmp(&strsim::jaro_winkler(b, asked))
                });
                Error::new(
                    ErrorKind::InvalidArgument,
                    format!(
                        "there is no engine {asked:?}; there are {}{}",
                        ENGINES.join(", "),
                        nearest.map_or(String::new(), |name| format!(": did you mean {name}?"))
                    ),
                )
            });
    }
    let (name, why) = match config.vendor.as_str() {
        "host" => ("shm", "the buffers are host memory"),
        "cuda" => ("nccl", "the buffers are of NVIDIA's devices"),
        "metax" => (
            "nccl",
            "the buffers are of MetaX's devices, whose mccl has NCCL's interface",
        ),
        "ascend" => ("hccl", "the buffers are of Ascend devices"),
        _ => ("flagcx", "FlagCX serves many vendors"),
    };
    Ok((name, why.to_owned()))
}

/// Connects this rank to its group. All ranks call it, with the same group and size.
///
/// Fails when the engine cannot be used, with the reason; another one is never taken in its place.
pub fn connect(config: &Config, store: &dyn Store) -> Result<Box<dyn Communicator>> {
    if config.size == 0 || config.rank >= config.size {
        return Err(Error::new(
            ErrorKind::InvalidArgument,
            format!("rank {} is not in a group of {}", config.rank, config.size),
        ));
    }
    let (engine, why) = choose(config)?;
    let connected: Result<Box<dyn Communicator>> = match engine {
        "shm" => match config.vendor.as_str() {
            "host" => shm::connect(config, store).map(|shm| Box::new(shm) as _),
            vendor => Err(Error::new(
                ErrorKind::Unsupported,
                format!("it serves host memory, the buffers are {vendor}'s"),
            )),
        },
        name => library::connect(name, config, store),
    };
    let communicator = connected.map_err(|error| {
        error.during(&format!(
            "group {:?}: the engine {engine} cannot be used ({why})",
            config.group
        ))
    })?;
    tracing::info!(
        engine,
        group = config.group,
        rank = config.rank,
        size = config.size,
        library = communicator.library().unwrap_or_default(),
        "connected: {why}"
    );
    Ok(communicator)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(engine: Option<&str>, vendor: &str) -> Config {
        Config {
            engine: engine.map(str::to_owned),
            library: None,
            vendor: vendor.to_owned(),
            rank: 0,
            size: 1,
            group: "test".to_owned(),
            timeout: Duration::from_secs(1),
            window: 1 << 20,
        }
    }

    #[test]
    fn memory_decides_unless_an_engine_is_named() {
        for (vendor, engine) in [
            ("host", "shm"),
            ("cuda", "nccl"),
            ("metax", "nccl"),
            ("ascend", "hccl"),
            ("x", "flagcx"),
        ] {
            assert_eq!(
                choose(&config(None, vendor)).expect("there is one").0,
                engine
            );
            assert_eq!(
                choose(&config(Some("auto"), vendor))
                    .expect("there is one")
                    .0,
                engine
            );
        }
        assert_eq!(
            choose(&config(Some("flagcx"), "cuda"))
                .expect("there is one")
                .0,
            "flagcx"
        );
    }

    #[test]
    fn an_unknown_engine_is_told_with_the_nearest() {
        let error = choose(&config(Some("ncl"), "cuda")).expect_err("there is none");
        assert_eq!(
            error.to_string(),
            "there is no engine \"ncl\"; there are shm, nccl, flagcx, hccl: did you mean nccl?"
        );
    }
}
