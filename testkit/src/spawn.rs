//! Starting a process that does not outlive the test.

use std::{
    io,
    path::Path,
    process::{Child, Command},
    sync::{LazyLock, mpsc},
    thread,
};

type Job = (Command, mpsc::Sender<io::Result<Child>>);

/// A parent-death signal follows the thread that spawned, not the process: a test's own thread, or
/// a runtime's worker, may end long before the test run does. This one lasts.
static SPAWNER: LazyLock<mpsc::Sender<Job>> = LazyLock::new(|| {
    let (jobs, queue) = mpsc::channel::<Job>();
    thread::spawn(move || {
        for (mut command, answer) in queue {
            // an asker that gave up does not need its answer
            let _ = answer.send(command.spawn());
        }
    });
    jobs
});

/// A command that is killed when this process ends, however it ends, where `setpriv` of util-linux
/// is there to arrange it; elsewhere an ordinary command.
pub(crate) fn mortal(program: &Path) -> Command {
    let setpriv = std::env::var_os("PATH")
        .into_iter()
        .flat_map(|path| std::env::split_paths(&path).collect::<Vec<_>>())
        .map(|dir| dir.join("setpriv"))
        .find(|file| file.is_file());
    let Some(setpriv) = setpriv else {
        return Command::new(program);
    };
    let mut command = Command::new(setpriv);
    command.args(["--pdeathsig", "KILL", "--"]).arg(program);
    command
}

/// Spawns on the thread that lasts.
pub(crate) fn spawn(command: Command) -> io::Result<Child> {
    let (answer, receive) = mpsc::channel();
    let gone = |_| io::Error::other("the spawning thread is gone");
    SPAWNER
        .send((command, answer))
        .map_err(|_| io::Error::other("the spawning thread is gone"))?;
    receive.recv().map_err(gone)?
}
