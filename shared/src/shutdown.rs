//! Clean shutdown: tokens that every task watches.

use tokio::signal::unix::{Signal, SignalKind, signal};
pub use tokio_util::sync::CancellationToken;

use crate::proc;

/// How a role is told to end.
#[derive(Clone, Debug, Default)]
pub struct Ending {
    /// End in an orderly way, but without waiting for anybody else.
    pub now: CancellationToken,
    /// End once others have taken over its work, or after its grace period.
    pub gently: CancellationToken,
}

impl From<CancellationToken> for Ending {
    fn from(now: CancellationToken) -> Self {
        Self {
            now,
            gently: CancellationToken::new(),
        }
    }
}

/// Returns a token that is cancelled by the first SIGINT, SIGTERM or SIGHUP (a closed terminal). A second SIGINT or
/// SIGTERM ends the process at once. A SIGHUP that is ignored, as under `nohup`, stays ignored.
pub fn on_signals() -> std::io::Result<CancellationToken> {
    let now = CancellationToken::new();
    watch(Ending {
        gently: now.clone(),
        now: now.clone(),
    })?;
    Ok(now)
}

/// Like [`on_signals`], but SIGTERM, with which service managers stop programs, ends it gently.
pub fn gently_on_sigterm() -> std::io::Result<Ending> {
    let ending = Ending::default();
    watch(ending.clone())?;
    Ok(ending)
}

fn watch(ending: Ending) -> std::io::Result<()> {
    let mut int = signal(SignalKind::interrupt())?;
    let mut term = signal(SignalKind::terminate())?;
    let hangup = SignalKind::hangup();
    // looked up first, because a signal that is listened for is not ignored any more
    let mut hup = if proc::is_ignored(hangup.as_raw_value()) {
        None
    } else {
        Some(signal(hangup)?)
    };
    tokio::spawn(async move {
        tokio::select! {
            _ = int.recv() => ending.now.cancel(),
            _ = term.recv() => ending.gently.cancel(),
            Some(()) = next(&mut hup) => ending.now.cancel(),
        }
        // not SIGHUP: the kernel and the shell both send it when a terminal is closed
        let number = tokio::select! {
            _ = int.recv() => SignalKind::interrupt(),
            _ = term.recv() => SignalKind::terminate(),
        };
        // the code with which shells report a program that a signal ended
        let code = 128 + number.as_raw_value();
        #[allow(clippy::exit)] // whoever signals twice does not want to wait for a clean end
        std::process::exit(code);
    });
    Ok(())
}

/// Waits for the next signal; returns none at once if none is listened for.
async fn next(signals: &mut Option<Signal>) -> Option<()> {
    signals.as_mut()?.recv().await
}
