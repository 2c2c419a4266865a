//! Ranks that are processes: the program forks them, and they meet in a folder.

use std::collections::HashMap;
use std::os::unix::net::UnixDatagram;
use std::time::{Duration, Instant};

use flagos_comm::{
    Collective, Communicator, Config, DType, Error, ErrorKind, Kind, ReduceOp, Result, Store,
    Stream, engine,
};

/// A store whose values are files of a folder.
struct Folder(std::path::PathBuf);

impl Store for Folder {
    fn set(&self, key: &str, value: &[u8]) -> Result<()> {
        let name = key.replace('/', "_");
        let new = self.0.join(format!("{name}.{}", std::process::id()));
        std::fs::write(&new, value)
            .and_then(|()| std::fs::rename(&new, self.0.join(name)))
            .map_err(|error| Error::new(ErrorKind::System, error.to_string()))
    }

    fn get(&self, key: &str, timeout: Duration) -> Result<Vec<u8>> {
        let deadline = Instant::now() + timeout;
        loop {
            if let Ok(value) = std::fs::read(self.0.join(key.replace('/', "_"))) {
                return Ok(value);
            }
            if Instant::now() > deadline {
                return Err(Error::new(ErrorKind::Timeout, format!("no {key}")));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Forks `ranks` processes that run `work`. Returns each answer, or nothing for a process that was killed.
pub fn fork(
    ranks: usize,
    name: &str,
    work: impl Fn(&dyn Communicator, usize) -> String,
) -> HashMap<usize, String> {
    let folder = std::env::temp_dir().join(format!("flagos-comm-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let socket = UnixDatagram::bind(folder.join("answers")).expect("a socket");
    let mut children = vec![];
    for rank in 0..ranks {
        // SAFETY: the child runs only what follows, and ends by `_exit`.
        let child = unsafe { libc::fork() };
        assert!(child >= 0, "fork");
        if child == 0 {
            let config = Config {
                engine: None,
                library: None,
                vendor: "host".into(),
                vendor_engine: Some("shm".into()),
                device: -1,
                rank,
                size: ranks,
                group: name.into(),
                timeout: Duration::from_secs(20),
                window: 1 << 20,
            };
            let communicator = engine::connect(&config, &Folder(folder.clone()));
            let answer = match communicator {
                Ok(communicator) => work(&*communicator, rank),
                Err(error) => format!("not connected: {error}"),
            };
            let out = UnixDatagram::unbound().expect("a socket");
            let message = format!("{rank} {answer}");
            out.send_to(message.as_bytes(), folder.join("answers"))
                .expect("the parent listens");
            // SAFETY: ends the child without what belongs to the parent.
            unsafe { libc::_exit(0) };
        }
        children.push(child);
    }
    for child in children {
        // SAFETY: a child of this process, waited for once.
        unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
    }
    socket.set_nonblocking(true).expect("a socket");
    let mut answers = HashMap::new();
    let mut buffer = vec![0; 1 << 16];
    while let Ok(length) = socket.recv(&mut buffer) {
        let text = String::from_utf8_lossy(&buffer[..length]).into_owned();
        let (rank, answer) = text.split_once(' ').expect("a rank and an answer");
        answers.insert(rank.parse().expect("a number"), answer.to_owned());
    }
    std::fs::remove_dir_all(folder).expect("it is there");
    answers
}

/// Adds up `data` of all ranks.
pub fn all_reduce(communicator: &dyn Communicator, data: &mut [f32]) -> Result<()> {
    let address = data.as_mut_ptr().cast::<u8>();
    let call = Collective {
        kind: Kind::AllReduce,
        dtype: DType::Float32,
        reduce: ReduceOp::Sum,
        root: None,
        tag: 0,
        count: data.len(),
        factor: 1.0,
        sequence: 1,
        timeout: Duration::from_secs(20),
        send: &[address],
        recv: &[address],
        send_counts: &[],
        recv_counts: &[],
    };
    // SAFETY: the buffer holds `count` elements.
    unsafe { communicator.issue(&call, Stream(std::ptr::null_mut())) }
}
