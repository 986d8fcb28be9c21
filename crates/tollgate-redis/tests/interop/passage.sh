# A passage by whoever runs this: as `Ground::pass`. $1 is the folder, $TOLLGATE_TOKEN the token.
cd "$1" || exit 2
verdict=0
(set -C && : >inside) 2>/dev/null || verdict=1
read -r seen <counter
sleep 0.001
echo $((seen + 1)) >counter
echo "run $TOLLGATE_TOKEN" >>passages
rm inside 2>/dev/null || verdict=1
exit $verdict
