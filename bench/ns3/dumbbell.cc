// The comparison scenario of bench/s1.toml in ns-3 (3.37, as Debian packages it): n bulk TCP flows, each with its own links
// of 100 Mbit/s at both ends, over one bottleneck of 45 Mbit/s with a drop-tail queue of 100 packets; base RTT 10 ms.
//
//   sender --100 Mbit/s, 3 ms-- L ==45 Mbit/s, 1 ms, 100 packets== R --100 Mbit/s, 1 ms-- receiver
//
// Set up as a tuned user of ns-3 would: no queue disciplines beside the one that is studied, routes found by a hash table
// instead of a scan, no weak end systems, no traces. NewReno, SACK, timestamps and delayed ACKs are ns-3's own.
#include "ns3/applications-module.h"
#include "ns3/core-module.h"
#include "ns3/internet-module.h"
#include "ns3/network-module.h"
#include "ns3/point-to-point-module.h"
#include "ns3/traffic-control-module.h"
#include <cstdio>
#include <sys/resource.h>
#include <unistd.h>
#include <unordered_map>
#include <vector>
using namespace ns3;

// IPv4 routing in O(1): one route per destination, found once and kept.
class HashRouting : public Ipv4RoutingProtocol
{
  public:
    static TypeId GetTypeId()
    {
        static TypeId tid = TypeId("HashRouting").SetParent<Ipv4RoutingProtocol>();
        return tid;
    }
    void Add(Ipv4Address to, uint32_t interface, Ipv4Address gateway) { m_table[to.Get()] = {interface, gateway}; }
    void SetDefault(uint32_t interface, Ipv4Address gateway) { m_default = {interface, gateway}; }
    void SetRouter() { m_router = true; }

    Ptr<Ipv4Route> RouteOutput(Ptr<Packet>, const Ipv4Header& h, Ptr<NetDevice>, Socket::SocketErrno& e) override
    {
        e = Socket::ERROR_NOTERROR;
        return Lookup(h.GetDestination());
    }
    bool RouteInput(Ptr<const Packet> p, const Ipv4Header& h, Ptr<const NetDevice>, UnicastForwardCallback forward,
                    MulticastForwardCallback, LocalDeliverCallback deliver, ErrorCallback) override
    {
        if (m_router)
            forward(Lookup(h.GetDestination()), p, h);
        else
            deliver(p, h, 1);
        return true;
    }
    void NotifyInterfaceUp(uint32_t) override {}
    void NotifyInterfaceDown(uint32_t) override {}
    void NotifyAddAddress(uint32_t, Ipv4InterfaceAddress) override {}
    void NotifyRemoveAddress(uint32_t, Ipv4InterfaceAddress) override {}
    void SetIpv4(Ptr<Ipv4> ipv4) override { m_ipv4 = ipv4; }
    void PrintRoutingTable(Ptr<OutputStreamWrapper>, Time::Unit) const override {}

  private:
    struct Entry
    {
        uint32_t interface;
        Ipv4Address gateway;
    };
    Ptr<Ipv4Route> Lookup(Ipv4Address to)
    {
        Ptr<Ipv4Route>& route = m_routes[to.Get()];
        if (!route)
        {
            auto found = m_table.find(to.Get());
            const Entry& entry = found == m_table.end() ? m_default : found->second;
            route = Create<Ipv4Route>();
            route->SetDestination(to);
            route->SetGateway(entry.gateway);
            route->SetSource(m_ipv4->GetAddress(entry.interface, 0).GetLocal());
            route->SetOutputDevice(m_ipv4->GetNetDevice(entry.interface));
        }
        return route;
    }
    Ptr<Ipv4> m_ipv4;
    std::unordered_map<uint32_t, Entry> m_table;
    std::unordered_map<uint32_t, Ptr<Ipv4Route>> m_routes;
    Entry m_default{};
    bool m_router = false;
};

class HashRoutingHelper : public Ipv4RoutingHelper
{
  public:
    HashRoutingHelper* Copy() const override { return new HashRoutingHelper(*this); }
    Ptr<Ipv4RoutingProtocol> Create(Ptr<Node>) const override { return CreateObject<HashRouting>(); }
};

static Ptr<HashRouting> Routing(Ptr<Node> node)
{
    return DynamicCast<HashRouting>(node->GetObject<Ipv4>()->GetRoutingProtocol());
}

static Ptr<Queue<Packet>> DeviceQueue(Ptr<NetDevice> device)
{
    return DynamicCast<PointToPointNetDevice>(device)->GetQueue();
}

// A full device queue makes the traffic control layer drop a packet before the device sees it.
static uint64_t g_drops = 0;
static void Dropped(Ptr<const Packet>) { g_drops++; }

static rusage Usage()
{
    rusage r;
    getrusage(RUSAGE_SELF, &r);
    return r;
}

static double CpuSeconds()
{
    rusage r = Usage();
    return r.ru_utime.tv_sec + r.ru_stime.tv_sec + (r.ru_utime.tv_usec + r.ru_stime.tv_usec) * 1e-6;
}

int main(int argc, char** argv)
{
    const uint32_t segment = 1448; // with timestamps in 1500 bytes
    uint32_t n = 1;
    double seconds = 60;
    std::string cc = "TcpNewReno";
    CommandLine cmd;
    cmd.AddValue("n", "flows; flow i starts at i/n s", n);
    cmd.AddValue("duration", "simulated seconds", seconds);
    cmd.AddValue("cc", "TcpNewReno | TcpLinuxReno", cc);
    cmd.Parse(argc, argv);

    Config::SetDefault("ns3::TcpL4Protocol::SocketType", StringValue("ns3::" + cc));
    Config::SetDefault("ns3::TcpSocket::SegmentSize", UintegerValue(segment));
    Config::SetDefault("ns3::TcpSocket::SndBufSize", UintegerValue(4 << 20));
    Config::SetDefault("ns3::TcpSocket::RcvBufSize", UintegerValue(6 << 20));
    Config::SetDefault("ns3::TcpSocket::ConnTimeout", TimeValue(Seconds(1)));
    Config::SetDefault("ns3::TcpSocket::DelAckTimeout", TimeValue(MilliSeconds(40)));
    Config::SetDefaultFailSafe("ns3::Ipv4::WeakEsModel", BooleanValue(false));

    Ptr<Node> L = CreateObject<Node>(), R = CreateObject<Node>();
    NodeContainer senders, receivers;
    senders.Create(n);
    receivers.Create(n);
    HashRoutingHelper routing;
    InternetStackHelper stack;
    stack.SetIpv6StackInstall(false);
    stack.SetRoutingHelper(routing);
    stack.InstallAll();

    PointToPointHelper link;
    link.SetQueue("ns3::DropTailQueue", "MaxSize", StringValue("1000000p"));
    auto connect = [&link](Ptr<Node> a, Ptr<Node> b, const char* rate, double ms) {
        link.SetDeviceAttribute("DataRate", StringValue(rate));
        link.SetChannelAttribute("Delay", TimeValue(MicroSeconds(ms * 1000)));
        return link.Install(a, b);
    };
    // Assigning an address installs a queue discipline on the device: taken off again.
    TrafficControlHelper discipline;
    Ipv4AddressHelper net("10.0.0.0", "255.255.255.252");
    auto address = [&](NetDeviceContainer& devices) {
        Ipv4InterfaceContainer interfaces = net.Assign(devices);
        discipline.Uninstall(devices);
        net.NewNetwork();
        return interfaces;
    };
    NetDeviceContainer middle = connect(L, R, "45Mbps", 1);
    DeviceQueue(middle.Get(0))->SetMaxSize(QueueSize("100p"));
    Ipv4InterfaceContainer across = address(middle);
    Routing(L)->SetRouter();
    Routing(R)->SetRouter();
    Routing(L)->SetDefault(1, across.GetAddress(1));
    Routing(R)->SetDefault(1, across.GetAddress(0));

    std::vector<Ptr<PacketSink>> sinks;
    for (uint32_t i = 0; i < n; i++)
    {
        NetDeviceContainer left = connect(senders.Get(i), L, "100Mbps", 3), right = connect(R, receivers.Get(i), "100Mbps", 1);
        Ipv4InterfaceContainer a = address(left), b = address(right);
        Routing(senders.Get(i))->SetDefault(1, a.GetAddress(1));
        Routing(receivers.Get(i))->SetDefault(1, b.GetAddress(0));
        Routing(L)->Add(a.GetAddress(0), i + 2, a.GetAddress(0));
        Routing(R)->Add(b.GetAddress(1), i + 2, b.GetAddress(1));

        PacketSinkHelper sink("ns3::TcpSocketFactory", InetSocketAddress(Ipv4Address::GetAny(), 5001));
        ApplicationContainer receiver = sink.Install(receivers.Get(i));
        receiver.Start(Seconds(0));
        sinks.push_back(DynamicCast<PacketSink>(receiver.Get(0)));
        BulkSendHelper bulk("ns3::TcpSocketFactory", InetSocketAddress(b.GetAddress(1), 5001));
        bulk.SetAttribute("SendSize", UintegerValue(segment));
        bulk.Install(senders.Get(i)).Start(Seconds(double(i) / n));
    }
    L->GetObject<TrafficControlLayer>()->TraceConnectWithoutContext("TcDrop", MakeCallback(&Dropped));

    double before = CpuSeconds();
    Simulator::Stop(Seconds(seconds));
    Simulator::Run();
    double cpu = CpuSeconds() - before;

    uint64_t bytes = 0;
    for (auto& sink : sinks)
        bytes += sink->GetTotalRx();
    uint64_t packets = (bytes + segment - 1) / segment;
    uint64_t drops = g_drops + DeviceQueue(middle.Get(0))->GetTotalDroppedPackets();
    printf("%.3f CPU-s, %llu data packets delivered, %.0f per CPU-second; %llu drops, goodput %.3f Mbit/s, peak memory %.1f MiB\n",
           cpu, (unsigned long long)packets, packets / cpu, (unsigned long long)drops, bytes * 8e-6 / seconds,
           Usage().ru_maxrss / 1024.0);
    fflush(stdout);
    _exit(0); // without taking everything down again: that is not what is measured
}
