//! The engines by name, and the choice among them.

use crate::{Communicator, Config, Error, ErrorKind, Result, Store, library, shm};

/// The engine for host memory.
pub const SHM: &str = "shm";

/// Every engine's name.
pub const ENGINES: [&str; 5] = [SHM, "nccl", "mccl", "flagcx", "hccl"];

/// The engine for `config`, and why.
pub fn choose(config: &Config) -> Result<(&'static str, String)> {
    let requested = config.engine.as_deref();
    if let Some(requested) = requested.filter(|name| !matches!(*name, "" | "auto")) {
        return Ok((known(requested)?, "it was asked for".to_owned()));
    }
    let vendor = &config.vendor;
    let Some(named) = &config.vendor_engine else {
        let why = format!("FlagCX serves many vendors, and the vendor {vendor} names no engine");
        return Ok(("flagcx", why));
    };
    let name = known(named)
        .map_err(|error| error.during(&format!("the vendor {vendor} names the engine {named}")))?;
    let why = match name {
        SHM => "the buffers are host memory".to_owned(),
        _ => format!("the vendor {vendor}, whose devices the buffers are of, names it"),
    };
    Ok((name, why))
}

/// The engine of this name.
fn known(requested: &str) -> Result<&'static str> {
    let found = ENGINES.into_iter().find(|name| *name == requested);
    found.ok_or_else(|| {
        let nearest = ENGINES.into_iter().max_by(|a, b| {
            strsim::jaro_winkler(a, requested).total_cmp(&strsim::jaro_winkler(b, requested))
        });
        Error::new(
            ErrorKind::InvalidArgument,
            format!(
                "there is no engine {requested:?}; there are {}{}",
                ENGINES.join(", "),
                nearest.map_or(String::new(), |name| format!(": did you mean {name}?"))
            ),
        )
    })
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
        SHM if config.vendor_engine.as_deref() == Some(SHM) => {
            shm::connect(config, store).map(|shm| Box::new(shm) as _)
        }
        SHM => Err(Error::new(
            ErrorKind::Unsupported,
            format!("it serves host memory, the buffers are {}'s", config.vendor),
        )),
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

    fn config(engine: Option<&str>, vendor_engine: Option<&str>) -> Config {
        Config {
            engine: engine.map(str::to_owned),
            library: None,
            vendor: "acme".to_owned(),
            vendor_engine: vendor_engine.map(str::to_owned),
            device: -1,
            rank: 0,
            size: 1,
            group: "test".to_owned(),
            timeout: Duration::from_secs(1),
            window: 1 << 20,
        }
    }

    #[test]
    fn the_vendor_decides_unless_an_engine_is_named() {
        for (vendors, engine, why) in [
            (Some("shm"), "shm", "host memory"),
            (Some("nccl"), "nccl", "the vendor acme"),
            (Some("mccl"), "mccl", "the vendor acme"),
            (Some("hccl"), "hccl", "the vendor acme"),
            (None, "flagcx", "names no engine"),
        ] {
            for requested in [None, Some(""), Some("auto")] {
                let (chosen, reason) = choose(&config(requested, vendors)).expect("there is one");
                assert_eq!(chosen, engine);
                assert!(reason.contains(why), "{reason}");
            }
            let (chosen, reason) = choose(&config(Some("flagcx"), vendors)).expect("there is one");
            assert_eq!((chosen, reason.as_str()), ("flagcx", "it was asked for"));
        }
    }

    #[test]
    fn an_unknown_engine_is_told_with_the_nearest() {
        let error = choose(&config(Some("ncl"), Some("shm"))).expect_err("there is none");
        assert_eq!(
            error.to_string(),
            "there is no engine \"ncl\"; there are shm, nccl, mccl, flagcx, hccl: did you mean nccl?"
        );
        let error = choose(&config(None, Some("xccl"))).expect_err("there is none");
        let message = error.to_string();
        assert!(
            message.contains("the vendor acme names the engine xccl"),
            "{message}"
        );
        assert!(message.contains("there is no engine \"xccl\""), "{message}");
    }

    #[test]
    fn shm_serves_host_memory_alone() {
        let store = crate::store::tests::Memory::default();
        connect(&config(None, Some("shm")), &store).expect("host memory");
        for vendors in [None, Some("nccl")] {
            let error = connect(&config(Some("shm"), vendors), &store)
                .err()
                .expect("a device's");
            let message = error.to_string();
            assert!(message.contains("the buffers are acme's"), "{message}");
        }
    }
}
