//! A connection, from when it was accepted to its end.

use std::{
    convert::Infallible,
    future::poll_fn,
    io,
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Instant,
};

use acidtest_transport::{Acceptor, Stream};
use bytes::Bytes;
use hyper::{
    body::{Body, Frame, SizeHint},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf},
    net::TcpStream,
    sync::watch,
    time::{sleep_until, timeout},
};

use crate::{
    Handler, Limits,
    activity::{Activity, LOOK, Over, Phase},
    places::Places,
};

/// Serves a connection. While it is idle, nothing is held of it but its socket and this future: the buffers of HTTP
/// would take ten times as much, and most connections are idle.
pub(crate) async fn serve(
    (stream, peer): (TcpStream, SocketAddr),
    acceptor: Acceptor,
    places: &Places,
    handler: &Arc<impl Handler>,
    limits: Limits,
    mut stop: watch::Receiver<bool>,
) {
    let accepted = async {
        // a client that says nothing yet is idle, and not slow
        places.while_idle(timeout(limits.idle_time, stream.peek(&mut [0]))).await?.ok()?.ok()?;
        acceptor.accept(stream, limits.head_time).await.ok()
    };
    let Some(mut stream) = (tokio::select! {
        stream = accepted => stream,
        _ = stop.wait_for(|stop| *stop) => return,
    }) else {
        return;
    };
    loop {
        tokio::select! {
            // that something can be read may be said too early: it is looked at what it is, which leaves it there
            came = places.while_idle(timeout(limits.idle_time, stream.arrives())) => match came {
                Some(Ok(Ok(true))) => {}
                _ => return,
            },
            _ = stop.wait_for(|stop| *stop) => return,
        }
        match Box::pin(serve_requests(stream, peer, handler, &limits, &mut stop)).await {
            Some(idle) => stream = idle,
            None => return,
        }
    }
}

/// Serves requests for as long as they follow each other. Returns the stream when it has become idle.
async fn serve_requests(
    stream: Stream,
    peer: SocketAddr,
    handler: &Arc<impl Handler>,
    limits: &Limits,
    stop: &mut watch::Receiver<bool>,
) -> Option<Stream> {
    let activity = Arc::new(Activity::new());
    let watched = Watched { stream, activity: Arc::clone(&activity) };
    let serves = service_fn({
        let activity = Arc::clone(&activity);
        move |request| {
            let (handler, activity) = (Arc::clone(handler), Arc::clone(&activity));
            Box::pin(async move {
                activity.enter(Phase::Request);
                let answer = handler.answer(peer, request).await;
                Ok::<_, Infallible>(answer.map(|body| Sent { body, activity }))
            })
        }
    });
    let mut connection = http1::Builder::new()
        .header_read_timeout(None)
        .max_buf_size(limits.head)
        .serve_connection(TokioIo::new(watched), serves);
    let mut is_ending = false;
    loop {
        tokio::select! {
            done = poll_fn(|context| connection.poll_without_shutdown(context)) => {
                done.ok()?;
                break;
            }
            () = sleep_until((Instant::now() + LOOK).into()) => match activity.is_over(limits) {
                Over::No => {}
                Over::Idle => activity.park(),
                Over::TooSlow => return None,
            },
            _ = stop.wait_for(|stop| *stop), if !is_ending => {
                is_ending = true;
                Pin::new(&mut connection).graceful_shutdown();
            }
        }
    }
    let parts = connection.into_parts();
    let Watched { mut stream, activity } = parts.io.into_inner();
    if activity.has_parked() && activity.is_idle() && parts.read_buf.is_empty() && !is_ending {
        return Some(stream);
    }
    // with TLS, a client is told that nothing is missing
    let _ = timeout(LOOK, stream.shutdown()).await;
    None
}

/// The body of an answer, which notes when it has been said: a connection is not idle before.
struct Sent<B> {
    body: B,
    activity: Arc<Activity>,
}

impl<B: Body<Data = Bytes> + Unpin> Body for Sent<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl<B> Drop for Sent<B> {
    fn drop(&mut self) {
        self.activity.enter(Phase::Idle);
    }
}

/// A stream that notes when something comes, and when what is written is not taken.
struct Watched {
    stream: Stream,
    activity: Arc<Activity>,
}

impl AsyncRead for Watched {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        if buffer.filled().len() > before {
            self.activity.came();
        }
        if read.is_pending() && self.activity.has_parked() {
            return Poll::Ready(Ok(()));
        }
        read
    }
}

impl AsyncWrite for Watched {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.activity.wrote(written.is_ready());
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        // TLS takes more than it has sent
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.activity.wrote(flushed.is_ready());
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, parts);
        self.activity.wrote(written.is_ready());
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
