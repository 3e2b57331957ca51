import com.sun.management.OperatingSystemMXBean;
import java.lang.management.ManagementFactory;

/** What this process has used of the processor. */
final class Processor {
    private Processor() {}

    static double seconds() {
        return ((OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime() / 1e9;
    }
}
