//! The next job of the thread that starts supervisors.

use std::{
    sync::mpsc,
    time::{Duration, Instant},
};

/// Returns the next job, and calls `sweep` at intervals while waiting; none if there will be no more jobs.
pub(super) fn next_job<T>(
    jobs: &mpsc::Receiver<T>,
    swept: &mut Instant,
    every: Duration,
    mut sweep: impl FnMut(),
) -> Option<T> {
    loop {
        let left = every.saturating_sub(swept.elapsed());
        // even if there is always another job
        if left.is_zero() {
            sweep();
            *swept = Instant::now();
        }
        match jobs.recv_timeout(left) {
            Ok(job) => return Some(job),
            Err(mpsc::RecvTimeoutError::Timeout) => {}
            Err(mpsc::RecvTimeoutError::Disconnected) => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_swept_again_and_again_with_jobs_and_without() {
        let (to, jobs) = mpsc::channel();
        let mut swept = Instant::now();
        let mut sweeps = 0;
        // there is no job until the third sweep
        let job = next_job(&jobs, &mut swept, Duration::from_millis(1), || {
            sweeps += 1;
            if sweeps == 3 {
                to.send("first").unwrap();
            }
        });
        assert_eq!((job, sweeps), (Some("first"), 3));
        // there is always another job
        to.send("second").unwrap();
        let job = next_job(&jobs, &mut swept, Duration::ZERO, || sweeps += 1);
        assert_eq!((job, sweeps), (Some("second"), 4));
        // not due yet
        let hour = Duration::from_secs(3_600);
        to.send("third").unwrap();
        let job = next_job(&jobs, &mut swept, hour, || sweeps += 1);
        assert_eq!((job, sweeps), (Some("third"), 4));
        drop(to);
        assert_eq!(next_job(&jobs, &mut swept, hour, || sweeps += 1), None);
    }
}
