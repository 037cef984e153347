#include "udp.h"

#include "common.h"

#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <string.h>
#include <sys/socket.h>

/* PACKET_BYTES: what one holds at MTU 1500. RUN_BYTES: as many whole ones as the kernel takes in one call. AHEAD_BYTES: how much
 * more a rank sends than it has received; twice that may wait in a socket. */
enum { PACKET_BYTES = 1472, RUN_BYTES = 44 * PACKET_BYTES, AHEAD_BYTES = 128 << 10, ROOM_BYTES = 8 << 20, PATIENCE_S = 10 };

static int udp = -1;
static char *out, *in;

/* Bytes since the messages have their size. The other rank may be a message ahead, and what belongs to it has come with the end of
 * this one. */
static size_t sent, received, end_of_exchange;

/* An address of this host that others reach; 0 where there is none. */
static in_addr_t own_address(void)
{
    in_addr_t found = 0;
    struct ifaddrs *all;
    if (getifaddrs(&all) != 0)
        return 0;
    for (struct ifaddrs *one = all; one; one = one->ifa_next)
        if (one->ifa_addr && one->ifa_addr->sa_family == AF_INET && !(one->ifa_flags & IFF_LOOPBACK))
            found = ((struct sockaddr_in *)one->ifa_addr)->sin_addr.s_addr;
    freeifaddrs(all);
    return found;
}

static void option(int level, int name, int value)
{
    if (setsockopt(udp, level, name, &value, sizeof value) != 0 && name != SO_RCVBUFFORCE)
        fail("a UDP socket: %s; Linux has what is wanted from 5.0 on", strerror(errno));
}

void udp_open(size_t longest)
{
    struct sockaddr_in own = {.sin_family = AF_INET, .sin_addr.s_addr = own_address()}, peer;
    socklen_t bytes = sizeof own;
    udp = socket(AF_INET, SOCK_DGRAM, 0);
    bool bound = bind(udp, (struct sockaddr *)&own, bytes) == 0;
    getsockname(udp, (struct sockaddr *)&own, &bytes);
    MPI_Sendrecv(&own, sizeof own, MPI_BYTE, !rank, 2, &peer, sizeof peer, MPI_BYTE, !rank, 2, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    if (!bound || connect(udp, (struct sockaddr *)&peer, sizeof peer) != 0)
        fail("the UDP sockets of the two ranks cannot be joined");
    option(SOL_SOCKET, SO_RCVBUF, ROOM_BYTES);
    /* Root may have more. */
    option(SOL_SOCKET, SO_RCVBUFFORCE, ROOM_BYTES);
    option(IPPROTO_UDP, UDP_SEGMENT, PACKET_BYTES);
    option(IPPROTO_UDP, UDP_GRO, 1);
    /* A message may be empty. */
    out = memory(longest + 1);
    /* What comes begins in a message, and may go on behind its end. */
    in = memory(longest + (64 << 10));
}

void udp_prepare(size_t bytes)
{
    sent = received = end_of_exchange = 0;
    fill(out, bytes, rank);
    memset(in, 0, bytes);
}

void udp_expect(size_t bytes)
{
    expect(in, bytes, !rank, "a message");
}

/* Sends the next datagrams of a message, up to the end of it. Returns whether the kernel took them; it does not while it has no room. */
static bool send_some(size_t bytes)
{
    size_t at = bytes ? sent % bytes : 0, count = bytes - at < RUN_BYTES ? bytes - at : RUN_BYTES;
    ssize_t took = send(udp, out + at, count, MSG_DONTWAIT);
    if (took < 0 && errno != EAGAIN && errno != ENOBUFS)
        fail("datagrams of a message of %zu bytes cannot be sent: %s", bytes, strerror(errno));
    sent += took < 0 ? 0 : (size_t)took;
    return took >= 0;
}

/* Receives what is there. Returns how many bytes; -1 if nothing is there. */
static ssize_t receive_some(size_t bytes)
{
    return recv(udp, in + (bytes ? received % bytes : 0), 64 << 10, MSG_DONTWAIT);
}

/* Ends the job when nothing has come for long: what is lost does not come again. */
static void be_patient(int looks)
{
    static double since;
    if (looks == 1)
        since = MPI_Wtime();
    else if (looks % (1 << 20) == 0 && MPI_Wtime() > since + PATIENCE_S)
        fail("a datagram was lost");
}

void udp_send(size_t bytes)
{
    /* An empty message is a datagram, too. */
    for (size_t end = sent + bytes; !send_some(bytes) || sent < end;)
        continue;
}

void udp_receive(size_t bytes)
{
    size_t end = received + bytes;
    int looks = 0;
    do {
        ssize_t got;
        while ((got = receive_some(bytes)) < 0)
            be_patient(++looks);
        received += (size_t)got;
    } while (received < end);
}

void udp_exchange(size_t bytes)
{
    size_t end = end_of_exchange += bytes;
    int looks = 0;
    while (sent < end || received < end) {
        if (sent < end && sent < received + AHEAD_BYTES)
            send_some(bytes);
        ssize_t got = receive_some(bytes);
        if (got < 0) {
            be_patient(++looks);
        } else {
            received += (size_t)got;
            looks = 0;
        }
    }
}
