//! The engines by name, and the choice among them.

use crate::{library, shm, Communicator, Config, Error, ErrorKind, Result, Store};

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
/// Fails with the reason when the engine cannot be used. No other engine ever takes its place.
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
    use std::time::Duration;

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
