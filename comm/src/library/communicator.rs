//! A [`Communicator`] over any dialect. It translates types, and composes the collectives that a library lacks.

use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use super::acl::{Context, Entered};
use super::dialect::{Dialect, Request, Verb};
use super::table::{by_values, reduces};
use crate::Config;
use crate::communicator::{Communicator, Stream};
use crate::gathered::Gathered;
use crate::{Collective, DType, Error, ErrorKind, Kind, ReduceOp, Result};

/// One rank's end of a group through a vendor's library.
pub struct LibraryCommunicator {
    dialect: Box<dyn Dialect>,
    /// The context that must be current on a thread that calls the library.
    context: Option<Context>,
    rank: usize,
    size: usize,
    name: String,
    /// Held during a call, because the libraries take one call at a time.
    turn: Mutex<()>,
    aborted: AtomicBool,
    reason: Mutex<String>,
    /// The reductions that the library lacks and the caller has gathered for.
    gathered: Gathered,
}

impl LibraryCommunicator {
    pub fn new(dialect: Box<dyn Dialect>, context: Option<Context>, config: &Config) -> Self {
        Self {
            dialect,
            context,
            rank: config.rank,
            size: config.size,
            name: config.group.clone(),
            turn: Mutex::new(()),
            aborted: AtomicBool::new(false),
            reason: Mutex::default(),
            gathered: Gathered::default(),
        }
    }

    fn enter(&self) -> Result<Option<Entered<'_>>> {
        self.context.as_ref().map(Context::enter).transpose()
    }

    fn check_abort(&self) -> Result<()> {
        if self.aborted.load(Ordering::Acquire) {
            let reason = self.reason.lock().clone();
            return Err(Error::new(
                ErrorKind::Aborted,
                format!("the group was aborted: {reason}"),
            )
            .due_to(self.rank));
        }
        Ok(())
    }

    /// The library's type of bytes, and the bytes of `count` elements: data that is only moved is moved as bytes.
    fn movement(&self, count: usize, dtype: DType) -> Result<(i32, usize)> {
        let table = self.dialect.table();
        let code = table
            .dtype(DType::UInt8)
            .or_else(|| table.dtype(DType::Int8));
        let code =
            code.ok_or_else(|| Error::new(ErrorKind::Internal, "a dialect without bytes"))?;
        Ok((code, count * dtype.size()))
    }

    /// The library's type, count and operation that reduce the call's elements.
    fn reduction(&self, call: &Collective<'_>) -> Result<(i32, usize, i32)> {
        let unsupported = |what: &str| {
            Error::new(
                ErrorKind::Unsupported,
                format!("{} has no {what}", self.dialect.library()),
            )
        };
        let (dtype, op) = by_values(call.dtype, call.reduce);
        let count = call.bytes() / dtype.size();
        let table = self.dialect.table();
        let code = table.reduced_dtype(dtype, op).ok_or_else(|| {
            unsupported(&format!("{} of {}", call.reduce.name(), call.dtype.name()))
        })?;
        if op == ReduceOp::PremulSum {
            return Ok((code, count, self.dialect.premul(call.factor, dtype)?));
        }
        let op = table
            .op(op)
            .ok_or_else(|| unsupported(&format!("{} of {}", call.reduce.name(), dtype.name())))?;
        Ok((code, count, op))
    }

    /// # Safety
    /// As [`Communicator::issue`].
    unsafe fn queue(&self, call: &Collective<'_>, stream: Stream) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe {
            if call.kind.reduces() {
                self.queue_reduction(call, stream.0)
            } else {
                self.queue_movement(call, stream.0)
            }
        }
    }

    /// # Safety
    /// As [`Self::queue`].
    unsafe fn queue_reduction(
        &self,
        call: &Collective<'_>,
        stream: *mut std::ffi::c_void,
    ) -> Result<()> {
        let root = call.root.unwrap_or_default();
        let (dtype, count, op) = self.reduction(call)?;
        let request = |verb, send| Request {
            verb,
            send,
            recv: call.recv[0],
            count,
            dtype,
        };
        // SAFETY: the caller's promise.
        let queue = |verb, send| unsafe { self.dialect.queue(&request(verb, send), stream) };
        let outcome = match call.kind {
            Kind::AllReduce => queue(Verb::AllReduce { op }, call.send[0]),
            Kind::Reduce => queue(Verb::Reduce { op, root }, call.send[0]),
            _ if adjacent(call.send, call.bytes()) => {
                queue(Verb::ReduceScatter { op }, call.send[0])
            }
            _ => self.grouped(|| {
                let mut parts = call.send.iter().enumerate();
                parts.try_for_each(|(root, &part)| queue(Verb::Reduce { op, root }, part))
            }),
        };
        if call.reduce == ReduceOp::PremulSum {
            self.dialect.drop_premul(op);
        }
        outcome
    }

    /// # Safety
    /// As [`Self::queue`].
    unsafe fn queue_movement(
        &self,
        call: &Collective<'_>,
        stream: *mut std::ffi::c_void,
    ) -> Result<()> {
        let root = call.root.unwrap_or_default();
        let (dtype, count) = self.movement(call.count, call.dtype)?;
        let queue = |verb, send, recv| {
            let request = Request {
                verb,
                send,
                recv,
                count,
                dtype,
            };
            // SAFETY: the caller's promise.
            unsafe { self.dialect.queue(&request, stream) }
        };
        // SAFETY: the caller's promise, for every arm.
        unsafe {
            match call.kind {
                Kind::Broadcast => queue(Verb::Broadcast { root }, call.send[0], call.recv[0]),
                Kind::AllGather if adjacent(&addresses(call.recv), call.bytes()) => {
                    queue(Verb::AllGather, call.send[0], call.recv[0])
                }
                Kind::AllGather => {
                    let everyone = vec![count; self.size];
                    let mine = vec![call.send[0]; self.size];
                    self.exchange(&mine, &everyone, call.recv, &everyone, dtype, stream)
                }
                Kind::Send => queue(Verb::Send { peer: root }, call.send[0], null_mut()),
                Kind::Recv => queue(Verb::Recv { peer: root }, null(), call.recv[0]),
                Kind::Gather => {
                    let everyone: Vec<usize> = vec![count; self.size];
                    let mine = one(self.size, root, call.send[0], count);
                    let receives = if call.recv.is_empty() {
                        (&[][..], &[][..])
                    } else {
                        (call.recv, &everyone[..])
                    };
                    self.exchange(&mine.0, &mine.1, receives.0, receives.1, dtype, stream)
                }
                Kind::Scatter => {
                    let everyone: Vec<usize> = vec![count; self.size];
                    let mut recv = vec![null_mut(); self.size];
                    let mut recv_counts = vec![0; self.size];
                    recv[root] = call.recv[0];
                    recv_counts[root] = count;
                    let sends = if call.send.is_empty() {
                        (&[][..], &[][..])
                    } else {
                        (call.send, &everyone[..])
                    };
                    self.exchange(sends.0, sends.1, &recv, &recv_counts, dtype, stream)
                }
                Kind::AllToAll => {
                    let scale = |counts: &[usize]| {
                        counts
                            .iter()
                            .map(|c| c * call.dtype.size())
                            .collect::<Vec<_>>()
                    };
                    let (out, back) = (scale(call.send_counts), scale(call.recv_counts));
                    self.exchange(call.send, &out, call.recv, &back, dtype, stream)
                }
                Kind::Barrier | Kind::AllReduce | Kind::Reduce | Kind::ReduceScatter => {
                    Err(Error::new(
                        ErrorKind::Internal,
                        format!("{} is not queued as it is", call.kind.name()),
                    ))
                }
            }
        }
    }

    fn grouped(&self, calls: impl FnOnce() -> Result<()>) -> Result<()> {
        self.dialect.group_start()?;
        let outcome = calls();
        // The group is ended also after a failure, or the thread's next calls would be queued in it.
        let ended = self.dialect.group_end();
        outcome.and(ended)
    }

    /// Sends and receives in one group of calls. Without receive buffers the rank only sends, without send buffers it
    /// only receives.
    ///
    /// # Safety
    /// The buffers are valid for their counts until the work is done.
    unsafe fn exchange(
        &self,
        send: &[*const u8],
        send_counts: &[usize],
        recv: &[*mut u8],
        recv_counts: &[usize],
        dtype: i32,
        stream: *mut std::ffi::c_void,
    ) -> Result<()> {
        self.grouped(|| {
            let queue = |verb, send, recv, count| {
                let request = Request {
                    verb,
                    send,
                    recv,
                    count,
                    dtype,
                };
                // SAFETY: the caller's promise.
                unsafe { self.dialect.queue(&request, stream) }
            };
            for peer in 0..self.size {
                if send_counts.get(peer).is_some_and(|&count| count != 0) {
                    queue(
                        Verb::Send { peer },
                        send[peer],
                        null_mut(),
                        send_counts[peer],
                    )?;
                }
                if recv_counts.get(peer).is_some_and(|&count| count != 0) {
                    queue(Verb::Recv { peer }, null(), recv[peer], recv_counts[peer])?;
                }
            }
            Ok(())
        })
    }
}

/// The lists of an exchange with one rank: one buffer for it, none for the others.
fn one(size: usize, rank: usize, address: *const u8, count: usize) -> (Vec<*const u8>, Vec<usize>) {
    let (mut addresses, mut counts) = (vec![null(); size], vec![0; size]);
    addresses[rank] = address;
    counts[rank] = count;
    (addresses, counts)
}

fn addresses(parts: &[*mut u8]) -> Vec<*const u8> {
    parts.iter().map(|part| part.cast_const()).collect()
}

/// Whether the parts follow each other in memory, as one buffer.
fn adjacent(parts: &[*const u8], bytes: usize) -> bool {
    parts
        .windows(2)
        .all(|pair| pair[0].wrapping_add(bytes) == pair[1])
}

impl Communicator for LibraryCommunicator {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn engine(&self) -> &'static str {
        self.dialect.engine()
    }

    fn reduces(&self, op: ReduceOp, dtype: DType) -> bool {
        let table = self.dialect.table();
        match op {
            ReduceOp::PremulSum => {
                self.dialect.has_premul() && reduces(table, ReduceOp::Sum, dtype)
            }
            op => reduces(table, op, dtype),
        }
    }

    fn note_gathered(&self, op: ReduceOp, dtype: DType, bytes: usize) {
        let library = self.dialect.library();
        if self.gathered.count(library, op, dtype, bytes) {
            tracing::warn!(
                reduction = format!("{} of {}", op.name(), dtype.name()),
                library,
                group = self.name,
                "the library lacks a reduction: each rank gathers the data of all and reduces them itself"
            );
        }
    }

    fn library(&self) -> Option<String> {
        Some(self.dialect.library().to_owned())
    }

    fn on_streams(&self) -> bool {
        true
    }

    unsafe fn issue(&self, call: &Collective<'_>, stream: Stream) -> Result<()> {
        call.check(self.rank, self.size)?;
        let _turn = self.turn.lock();
        let _entered = self.enter()?;
        self.check_abort()
            // SAFETY: the caller's promise.
            .and_then(|()| unsafe { self.queue(call, stream) })
            .map_err(|error| {
                error.during(&format!(
                    "{call} in group {:?} on rank {}",
                    self.name, self.rank
                ))
            })
    }

    unsafe fn receive_any(&self, _call: &Collective<'_>) -> Result<usize> {
        Err(Error::new(
            ErrorKind::Unsupported,
            format!(
                "{} cannot receive from any rank: name the rank",
                self.dialect.library()
            ),
        ))
    }

    fn group_start(&self) -> Result<()> {
        self.check_abort()?;
        let _entered = self.enter()?;
        self.dialect.group_start()
    }

    fn group_end(&self) -> Result<()> {
        // The group ends in any case.
        let _entered = self.enter();
        self.dialect.group_end()
    }

    fn abort(&self, reason: &str) {
        {
            let mut kept = self.reason.lock();
            if self.aborted.load(Ordering::Acquire) {
                return;
            }
            reason.clone_into(&mut kept);
            self.aborted.store(true, Ordering::Release);
        }
        // Does not wait for the turn, because an abort must end a call that hangs in the library.
        if let Err(error) = self.enter().and_then(|_entered| self.dialect.abort()) {
            tracing::warn!(%error, group = self.name, "the library could not abort");
        }
    }

    fn async_error(&self) -> Result<()> {
        self.check_abort()?;
        let _entered = self.enter()?;
        self.dialect.async_error()
    }

    fn state(&self) -> serde_json::Value {
        serde_json::json!({
            "engine": self.dialect.engine(),
            "library": self.dialect.library(),
            "group": self.name,
            "rank": self.rank,
            "gathered": self.gathered.all(),
            "aborted": self.aborted.load(Ordering::Acquire).then(|| self.reason.lock().clone()),
        })
    }
}

impl Drop for LibraryCommunicator {
    fn drop(&mut self) {
        // For the end of the dialect, which follows.
        if let Some(Err(error)) = self.context.as_ref().map(Context::make_current) {
            tracing::warn!(%error, group = self.name, "a communicator ends without its device");
        }
    }
}
