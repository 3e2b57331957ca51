module tidings.test/kapacitor

go 1.21

require github.com/influxdata/kapacitor v1.5.9

replace gopkg.in/fsnotify.v1 => github.com/fsnotify/fsnotify v1.4.2

replace github.com/prometheus/prometheus => github.com/goller/prometheus v1.6.1-0.20170502220046-58298e738211
